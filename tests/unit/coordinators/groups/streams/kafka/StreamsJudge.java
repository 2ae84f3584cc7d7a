import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.File;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.message.StreamsGroupHeartbeatRequestData;
import org.apache.kafka.common.metadata.PartitionRecord;
import org.apache.kafka.common.metadata.TopicRecord;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.coordinator.common.runtime.KRaftCoordinatorMetadataImage;
import org.apache.kafka.coordinator.group.streams.StreamsTopology;
import org.apache.kafka.coordinator.group.streams.assignor.AssignmentMemberSpec;
import org.apache.kafka.coordinator.group.streams.assignor.GroupSpecImpl;
import org.apache.kafka.coordinator.group.streams.assignor.StickyTaskAssignor;
import org.apache.kafka.coordinator.group.streams.assignor.TopologyDescriber;
import org.apache.kafka.coordinator.group.streams.topics.ConfiguredTopology;
import org.apache.kafka.coordinator.group.streams.topics.InternalTopicManager;
import org.apache.kafka.image.MetadataDelta;
import org.apache.kafka.image.MetadataImage;
import org.apache.kafka.image.MetadataProvenance;
import org.slf4j.LoggerFactory;

/**
 * Asks Kafka's own classes about streams groups: their assignor, and what a topology comes to with some topics.
 *
 * The first argument is a JSON file with a list of questions, the second the file for the answers, one for each.
 */
public final class StreamsJudge {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        ArrayNode answers = JSON.createArrayNode();
        for (JsonNode question : JSON.readTree(new File(arguments[0]))) {
            switch (question.get("ask").asText()) {
                case "assign" -> answers.add(assign(question));
                case "configure" -> answers.add(configure(question));
                default -> throw new IllegalArgumentException(question.toString());
            }
        }
        JSON.writeValue(new File(arguments[1]), answers);
    }

    private static JsonNode assign(JsonNode question) {
        Map<String, AssignmentMemberSpec> members = new HashMap<>();
        for (JsonNode member : question.get("members")) {
            members.put(member.get("id").asText(), new AssignmentMemberSpec(
                Optional.empty(), Optional.empty(), tasks(member.get("active")), tasks(member.get("standby")), Map.of(),
                member.get("process").asText(), Map.of(), Map.of(), Map.of()));
        }
        Map<String, Integer> counts = new TreeMap<>();
        Set<String> stateful = new HashSet<>();
        question.get("subtopologies").properties().forEach(each -> {
            counts.put(each.getKey(), each.getValue().get(0).asInt());
            if (each.getValue().get(1).asBoolean())
                stateful.add(each.getKey());
        });
        TopologyDescriber describer = new TopologyDescriber() {
            @Override
            public List<String> subtopologies() {
                return new ArrayList<>(counts.keySet());
            }

            @Override
            public int maxNumInputPartitions(String subtopologyId) {
                return counts.get(subtopologyId);
            }

            @Override
            public boolean isStateful(String subtopologyId) {
                return stateful.contains(subtopologyId);
            }
        };
        Map<String, String> configs = Map.of("num.standby.replicas", question.get("standbys").asText());
        ObjectNode answer = JSON.createObjectNode();
        new StickyTaskAssignor().assign(new GroupSpecImpl(members, configs), describer).members().forEach((id, found) -> {
            ObjectNode told = answer.putObject(id);
            told.set("active", tasks(found.activeTasks()));
            told.set("standby", tasks(found.standbyTasks()));
        });
        return answer;
    }

    private static Map<String, Set<Integer>> tasks(JsonNode told) {
        Map<String, Set<Integer>> found = new HashMap<>();
        told.properties().forEach(each -> {
            Set<Integer> numbers = new HashSet<>();
            each.getValue().forEach(number -> numbers.add(number.asInt()));
            found.put(each.getKey(), numbers);
        });
        return found;
    }

    private static ObjectNode tasks(Map<String, Set<Integer>> found) {
        ObjectNode told = JSON.createObjectNode();
        found.forEach((id, numbers) -> {
            ArrayNode list = told.putArray(id);
            numbers.stream().sorted().forEach(list::add);
        });
        return told;
    }

    private static JsonNode configure(JsonNode question) {
        MetadataDelta delta = new MetadataDelta.Builder().setImage(MetadataImage.EMPTY).build();
        question.get("topics").properties().forEach(each -> {
            Uuid id = Uuid.randomUuid();
            delta.replay(new TopicRecord().setName(each.getKey()).setTopicId(id));
            for (int number = 0; number < each.getValue().asInt(); number++) {
                delta.replay(new PartitionRecord().setTopicId(id).setPartitionId(number)
                    .setReplicas(List.of(1)).setIsr(List.of(1)).setLeader(1));
            }
        });
        MetadataImage image = delta.apply(MetadataProvenance.EMPTY);
        ObjectNode answer = JSON.createObjectNode();
        try {
            StreamsTopology topology = StreamsTopology.fromHeartbeatRequest(topology(question.get("subtopologies")));
            ConfiguredTopology found = InternalTopicManager.configureTopics(
                LoggerFactory.getLogger(StreamsJudge.class), "group", "member", 1L, topology,
                new KRaftCoordinatorMetadataImage(image), Time.SYSTEM);
            answer.put("ready", found.isReady());
            found.topicConfigurationException().ifPresent(problem ->
                answer.put("status", problem.status().code()).put("detail", problem.getMessage()));
            found.subtopologies().ifPresent(subtopologies -> {
                ObjectNode told = answer.putObject("tasks");
                subtopologies.forEach((id, each) -> told.put(id, each.numberOfTasks()));
            });
            ObjectNode missing = answer.putObject("missing");
            found.internalTopicsToBeCreated().forEach((name, topic) ->
                missing.putArray(name).add(topic.numPartitions()).add(topic.replicationFactor()));
        } catch (RuntimeException error) {
            Errors code = error instanceof ApiException ? Errors.forException(error) : Errors.UNKNOWN_SERVER_ERROR;
            answer.put("error", code.code());
            if (code != Errors.UNKNOWN_SERVER_ERROR)
                answer.put("message", error.getMessage());
        }
        return answer;
    }

    private static StreamsGroupHeartbeatRequestData.Topology topology(JsonNode told) {
        StreamsGroupHeartbeatRequestData.Topology topology = new StreamsGroupHeartbeatRequestData.Topology().setEpoch(3);
        for (JsonNode each : told) {
            List<StreamsGroupHeartbeatRequestData.CopartitionGroup> groups = new ArrayList<>();
            each.get("together").forEach(group -> groups.add(new StreamsGroupHeartbeatRequestData.CopartitionGroup()
                .setSourceTopics(numbers(group.get(0))).setRepartitionSourceTopics(numbers(group.get(1)))));
            topology.subtopologies().add(new StreamsGroupHeartbeatRequestData.Subtopology()
                .setSubtopologyId(each.get("id").asText())
                .setSourceTopics(texts(each.get("sources")))
                .setRepartitionSinkTopics(texts(each.get("sinks")))
                .setRepartitionSourceTopics(topics(each.get("repartitioned")))
                .setStateChangelogTopics(topics(each.get("changelogs")))
                .setCopartitionGroups(groups));
        }
        return topology;
    }

    private static List<StreamsGroupHeartbeatRequestData.TopicInfo> topics(JsonNode told) {
        List<StreamsGroupHeartbeatRequestData.TopicInfo> found = new ArrayList<>();
        told.forEach(each -> found.add(new StreamsGroupHeartbeatRequestData.TopicInfo()
            .setName(each.get(0).asText()).setPartitions(each.get(1).asInt())
            .setReplicationFactor((short) each.get(2).asInt())));
        return found;
    }

    private static List<String> texts(JsonNode told) {
        List<String> found = new ArrayList<>();
        told.forEach(each -> found.add(each.asText()));
        return found;
    }

    private static List<Short> numbers(JsonNode told) {
        List<Short> found = new ArrayList<>();
        told.forEach(each -> found.add((short) each.asInt()));
        return found;
    }
}
