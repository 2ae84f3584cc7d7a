import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.File;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Optional;
import java.util.Random;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.metadata.PartitionChangeRecord;
import org.apache.kafka.controller.PartitionChangeBuilder;
import org.apache.kafka.metadata.LeaderRecoveryState;
import org.apache.kafka.metadata.PartitionRegistration;
import org.apache.kafka.metadata.placement.ClusterDescriber;
import org.apache.kafka.metadata.placement.PartitionAssignment;
import org.apache.kafka.metadata.placement.PlacementSpec;
import org.apache.kafka.metadata.placement.StripedReplicaPlacer;
import org.apache.kafka.metadata.placement.UsableBroker;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.kafka.server.common.MetadataVersion;

/**
 * Asks Kafka's own controller what becomes of partitions, and where it would place replicas.
 *
 * The first argument is a JSON file with "changes" and "placements", the second the file for the answers. The directory
 * of broker n is the UUID (1, n).
 */
public final class ControllerJudge {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        JsonNode questions = JSON.readTree(new File(arguments[0]));
        ObjectNode answers = JSON.createObjectNode();
        ArrayNode changes = answers.putArray("changes");
        for (JsonNode question : questions.get("changes")) {
            changes.add(change(question));
        }
        ArrayNode placements = answers.putArray("placements");
        for (JsonNode question : questions.get("placements")) {
            placements.add(place(question));
        }
        JSON.writeValue(new File(arguments[1]), answers);
    }

    private static JsonNode change(JsonNode question) {
        JsonNode old = question.get("partition");
        List<Integer> replicas = list(old.get("replicas"));
        List<Integer> active = list(question.get("active"));
        PartitionRegistration partition = new PartitionRegistration.Builder().
            setReplicas(array(replicas)).
            setDirectories(replicas.stream().map(ControllerJudge::directory).toArray(Uuid[]::new)).
            setIsr(array(list(old.get("isr")))).
            setRemovingReplicas(array(list(old.get("removing")))).
            setAddingReplicas(array(list(old.get("adding")))).
            setElr(array(list(old.get("elr")))).
            setLastKnownElr(array(list(old.get("last_known_elr")))).
            setLeader(old.get("leader").asInt()).
            setLeaderRecoveryState(LeaderRecoveryState.of((byte) old.get("recovery").asInt())).
            setLeaderEpoch(5).
            setPartitionEpoch(7).
            build();
        PartitionChangeBuilder builder = new PartitionChangeBuilder(
            partition, new Uuid(2, 2), 0, active::contains,
            MetadataVersion.fromFeatureLevel((short) question.get("level").asInt()),
            question.get("min_isr").asInt(), question.get("elr").asBoolean());
        builder.setDefaultDirProvider(ControllerJudge::directory);
        builder.setElection(PartitionChangeBuilder.Election.valueOf(question.get("election").asText()));
        JsonNode target = question.get("target");
        if (!target.get("isr").isNull()) builder.setTargetIsr(list(target.get("isr")));
        if (!target.get("replicas").isNull()) builder.setTargetReplicas(list(target.get("replicas")));
        if (!target.get("removing").isNull()) builder.setTargetRemoving(list(target.get("removing")));
        if (!target.get("adding").isNull()) builder.setTargetAdding(list(target.get("adding")));
        if (!target.get("recovery").isNull()) {
            builder.setTargetLeaderRecoveryState(LeaderRecoveryState.of((byte) target.get("recovery").asInt()));
        }
        if (!target.get("unclean_shutdown").isNull()) {
            builder.setUncleanShutdownReplicas(List.of(target.get("unclean_shutdown").asInt()));
        }
        Optional<ApiMessageAndVersion> built = builder.build();
        return built.isEmpty() ? JSON.nullNode() : shown(built.get());
    }

    private static JsonNode shown(ApiMessageAndVersion built) {
        PartitionChangeRecord record = (PartitionChangeRecord) built.message();
        ObjectNode answer = JSON.createObjectNode();
        answer.put("version", built.version());
        answer.put("leader", record.leader());
        answer.put("recovery", record.leaderRecoveryState());
        answer.set("isr", JSON.valueToTree(record.isr()));
        answer.set("replicas", JSON.valueToTree(record.replicas()));
        answer.set("removing", JSON.valueToTree(record.removingReplicas()));
        answer.set("adding", JSON.valueToTree(record.addingReplicas()));
        answer.set("elr", JSON.valueToTree(record.eligibleLeaderReplicas()));
        answer.set("last_known_elr", JSON.valueToTree(record.lastKnownElr()));
        if (record.directories() == null) {
            answer.putNull("directories");
        } else {
            ArrayNode directories = answer.putArray("directories");
            record.directories().forEach(each -> directories.add(each.getLeastSignificantBits()));
        }
        return answer;
    }

    private static JsonNode place(JsonNode question) {
        List<UsableBroker> brokers = new ArrayList<>();
        for (JsonNode each : question.get("brokers")) {
            Optional<String> rack = each.get("rack").isNull() ? Optional.empty() : Optional.of(each.get("rack").asText());
            brokers.add(new UsableBroker(each.get("id").asInt(), rack, each.get("fenced").asBoolean()));
        }
        String chance = question.get("chance").asText();
        Random random = new Random() {
            @Override
            public int nextInt(int bound) {
                return chance.equals("first") ? 0 : chance.equals("last") ? bound - 1 : bound / 2;
            }
        };
        ClusterDescriber cluster = new ClusterDescriber() {
            @Override
            public Iterator<UsableBroker> usableBrokers() {
                return brokers.iterator();
            }

            @Override
            public Uuid defaultDir(int broker) {
                return directory(broker);
            }
        };
        PlacementSpec spec = new PlacementSpec(
            0, question.get("partitions").asInt(), (short) question.get("factor").asInt());
        ArrayNode answer = JSON.createArrayNode();
        for (PartitionAssignment each : new StripedReplicaPlacer(random).place(spec, cluster).assignments()) {
            answer.add(JSON.valueToTree(each.replicas()));
        }
        return answer;
    }

    private static Uuid directory(int broker) {
        return new Uuid(1, broker);
    }

    private static List<Integer> list(JsonNode node) {
        List<Integer> found = new ArrayList<>();
        node.forEach(each -> found.add(each.asInt()));
        return found;
    }

    private static int[] array(List<Integer> list) {
        return list.stream().mapToInt(Integer::intValue).toArray();
    }
}
