import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.google.re2j.Pattern;
import com.google.re2j.PatternSyntaxException;
import java.io.File;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.metadata.PartitionRecord;
import org.apache.kafka.common.metadata.RegisterBrokerRecord;
import org.apache.kafka.common.metadata.TopicRecord;
import org.apache.kafka.coordinator.common.runtime.KRaftCoordinatorMetadataImage;
import org.apache.kafka.coordinator.group.Utils;
import org.apache.kafka.coordinator.group.api.assignor.MemberAssignment;
import org.apache.kafka.coordinator.group.api.assignor.PartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.RangeAssignor;
import org.apache.kafka.coordinator.group.assignor.SimpleAssignor;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;
import org.apache.kafka.image.MetadataDelta;
import org.apache.kafka.image.MetadataImage;
import org.apache.kafka.image.MetadataProvenance;

/**
 * Asks Kafka's own classes about consumer and share groups: their assignors, the hash of their topics, their regular expressions.
 *
 * The first argument is a JSON file with a list of questions, the second the file for the answers, one for each.
 */
public final class GroupJudge {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        ArrayNode answers = JSON.createArrayNode();
        for (JsonNode question : JSON.readTree(new File(arguments[0]))) {
            switch (question.get("ask").asText()) {
                case "assign" -> answers.add(assign(question));
                case "hash" -> answers.add(hash(question));
                case "regex" -> answers.add(regex(question));
                default -> throw new IllegalArgumentException(question.toString());
            }
        }
        JSON.writeValue(new File(arguments[1]), answers);
    }

    private static JsonNode assign(JsonNode question) {
        Map<Uuid, Integer> partitions = new HashMap<>();
        question.get("partitions").properties().forEach(
            each -> partitions.put(Uuid.fromString(each.getKey()), each.getValue().asInt()));
        Map<String, MemberSubscriptionAndAssignmentImpl> members = new HashMap<>();
        Map<Uuid, Map<Integer, String>> inverted = new HashMap<>();
        for (JsonNode member : question.get("members")) {
            String id = member.get("id").asText();
            Set<Uuid> topics = new HashSet<>();
            member.get("topics").forEach(topic -> topics.add(Uuid.fromString(topic.asText())));
            Map<Uuid, Set<Integer>> target = new HashMap<>();
            member.get("target").properties().forEach(each -> {
                List<Integer> numbers = new ArrayList<>();
                each.getValue().forEach(number -> numbers.add(number.asInt()));
                Uuid topic = Uuid.fromString(each.getKey());
                target.put(topic, new HashSet<>(numbers));
                numbers.forEach(number -> inverted.computeIfAbsent(topic, __ -> new HashMap<>()).put(number, id));
            });
            Optional<String> instance = Optional.ofNullable(member.get("instance").textValue());
            members.put(id, new MemberSubscriptionAndAssignmentImpl(
                Optional.empty(), instance, topics, new Assignment(Collections.unmodifiableMap(target))));
        }
        SubscribedTopicDescriber describer = new SubscribedTopicDescriber() {
            @Override
            public int numPartitions(Uuid topicId) {
                return partitions.getOrDefault(topicId, -1);
            }

            @Override
            public Set<String> racksForPartition(Uuid topicId, int partition) {
                return Set.of();
            }
        };
        PartitionAssignor assignor = switch (question.get("assignor").asText()) {
            case "range" -> new RangeAssignor();
            case "simple" -> new SimpleAssignor();
            default -> new UniformAssignor();
        };
        SubscriptionType type =
            question.get("uniform").asBoolean() ? SubscriptionType.HOMOGENEOUS : SubscriptionType.HETEROGENEOUS;
        ObjectNode answer = JSON.createObjectNode();
        Map<String, MemberAssignment> found =
            assignor.assign(new GroupSpecImpl(members, type, inverted), describer).members();
        found.forEach((id, assignment) -> {
            ObjectNode target = answer.putObject(id);
            assignment.partitions().forEach((topic, numbers) -> {
                ArrayNode list = target.putArray(topic.toString());
                numbers.stream().sorted().forEach(list::add);
            });
        });
        return answer;
    }

    private static JsonNode hash(JsonNode question) {
        MetadataDelta delta = new MetadataDelta.Builder().setImage(MetadataImage.EMPTY).build();
        question.get("racks").properties().forEach(each -> delta.replay(new RegisterBrokerRecord()
            .setBrokerId(Integer.parseInt(each.getKey())).setRack(each.getValue().textValue())));
        Map<String, Long> hashes = new HashMap<>();
        for (JsonNode topic : question.get("topics")) {
            Uuid id = Uuid.fromString(topic.get("id").asText());
            delta.replay(new TopicRecord().setName(topic.get("name").asText()).setTopicId(id));
            int number = 0;
            for (JsonNode partition : topic.get("replicas")) {
                List<Integer> replicas = new ArrayList<>();
                partition.forEach(replica -> replicas.add(replica.asInt()));
                delta.replay(new PartitionRecord().setTopicId(id).setPartitionId(number++)
                    .setReplicas(replicas).setIsr(replicas).setLeader(replicas.get(0)));
            }
        }
        var image = new KRaftCoordinatorMetadataImage(delta.apply(new MetadataProvenance(1, 1, 1, true)));
        question.get("topics").forEach(topic ->
            hashes.put(topic.get("name").asText(), Utils.computeTopicHash(topic.get("name").asText(), image)));
        return JSON.createObjectNode().put("hash", Long.toString(Utils.computeGroupHash(hashes)));
    }

    private static JsonNode regex(JsonNode question) {
        ObjectNode answer = JSON.createObjectNode();
        try {
            Pattern pattern = Pattern.compile(question.get("regex").asText());
            ArrayNode matches = answer.putArray("matches");
            for (JsonNode name : question.get("names")) {
                if (pattern.matcher(name.asText()).matches()) {
                    matches.add(name.asText());
                }
            }
        } catch (PatternSyntaxException error) {
            answer.put("error", error.getDescription());
        }
        return answer;
    }
}
