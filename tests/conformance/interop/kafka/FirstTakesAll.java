import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.ConsumerGroupPartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.GroupAssignment;
import org.apache.kafka.coordinator.group.api.assignor.GroupSpec;
import org.apache.kafka.coordinator.group.api.assignor.MemberAssignment;
import org.apache.kafka.coordinator.group.api.assignor.PartitionAssignorException;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;

/** Assigns each topic to the first of its subscribers by id. A member's instance id can make it throw. */
public final class FirstTakesAll implements ConsumerGroupPartitionAssignor {
    @Override
    public String name() {
        return "first-takes-all";
    }

    @Override
    public GroupAssignment assign(GroupSpec group, SubscribedTopicDescriber topics) {
        Set<Uuid> taken = new HashSet<>();
        Map<String, Map<Uuid, Set<Integer>>> assignments = new HashMap<>();
        for (String member : new TreeSet<>(group.memberIds())) {
            assignments.put(member, new HashMap<>());
            String instance = group.memberSubscription(member).instanceId().orElse("");
            if (instance.equals("objects")) {
                throw new PartitionAssignorException(member + " objects, and has "
                    + group.memberAssignment(member).partitions().size() + " topics, " + group.subscriptionType());
            }
            if (instance.equals("breaks")) {
                throw new IllegalStateException("the assignor is broken");
            }
            for (Uuid topic : group.memberSubscription(member).subscribedTopicIds()) {
                if (taken.add(topic)) {
                    assignments.get(member).put(topic, all(topic, topics));
                }
            }
        }
        Map<String, MemberAssignment> members = new HashMap<>();
        assignments.forEach((member, owned) -> members.put(member, () -> owned));
        return new GroupAssignment(members);
    }

    private static Set<Integer> all(Uuid topic, SubscribedTopicDescriber topics) {
        Set<Integer> partitions = new HashSet<>();
        for (int partition = 0; partition < topics.numPartitions(topic); partition++) {
            partitions.add(partition);
        }
        return partitions;
    }
}
