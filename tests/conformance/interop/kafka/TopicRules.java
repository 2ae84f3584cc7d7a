import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.common.errors.InvalidPartitionsException;
import org.apache.kafka.common.errors.PolicyViolationException;
import org.apache.kafka.server.policy.CreateTopicPolicy;

/** A topic policy that acts on the names of topics, and puts its arguments into its message and its output. */
public final class TopicRules implements CreateTopicPolicy {
    private String greeting;

    @Override
    public void configure(Map<String, ?> settings) {
        greeting = (String) settings.get("rules.greeting");
        System.out.println("TopicRules for node " + settings.get("node.id"));
    }

    @Override
    public void validate(RequestMetadata request) {
        System.out.println("asked about " + request.topic());
        String name = request.topic();
        if (name.startsWith("refused")) {
            String counts = request.numPartitions() + " " + request.replicationFactor();
            throw new PolicyViolationException(greeting + ": " + name + " " + counts + " "
                + request.replicasAssignments() + " " + new TreeMap<>(request.configs()));
        }
        if (name.startsWith("numbered")) {
            throw new InvalidPartitionsException(greeting + ": these partitions are not to my liking");
        }
        if (name.startsWith("broken")) {
            throw new IllegalStateException("the rules are broken");
        }
        if (name.startsWith("slow")) {
            pause();
        }
        if (name.startsWith("deadly")) {
            Runtime.getRuntime().halt(3);
        }
    }

    private static void pause() {
        try {
            Thread.sleep(30_000);
        } catch (InterruptedException stopped) {
            Thread.currentThread().interrupt();
        }
    }

    @Override
    public void close() {
        System.out.println("TopicRules closed");
    }
}
