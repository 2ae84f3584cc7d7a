package org.apache.kafka.controller;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.File;
import java.nio.ByteBuffer;
import java.util.AbstractMap;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.Set;
import java.util.TreeMap;
import java.util.function.Supplier;
import org.apache.kafka.clients.admin.AlterConfigOp.OpType;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.message.AlterPartitionReassignmentsRequestData;
import org.apache.kafka.common.message.AlterPartitionRequestData;
import org.apache.kafka.common.message.AlterPartitionResponseData;
import org.apache.kafka.common.message.AssignReplicasToDirsRequestData;
import org.apache.kafka.common.message.BrokerHeartbeatRequestData;
import org.apache.kafka.common.message.BrokerRegistrationRequestData;
import org.apache.kafka.common.message.CreatePartitionsRequestData;
import org.apache.kafka.common.message.CreateTopicsRequestData;
import org.apache.kafka.common.message.DeleteTopicsRequestData;
import org.apache.kafka.common.message.ElectLeadersRequestData;
import org.apache.kafka.common.message.IncrementalAlterConfigsRequestData;
import org.apache.kafka.common.message.RequestHeaderData;
import org.apache.kafka.common.message.UnregisterBrokerRequestData;
import org.apache.kafka.common.metadata.BrokerRegistrationChangeRecord;
import org.apache.kafka.common.metadata.ClearElrRecord;
import org.apache.kafka.common.metadata.ConfigRecord;
import org.apache.kafka.common.metadata.FeatureLevelRecord;
import org.apache.kafka.common.metadata.PartitionChangeRecord;
import org.apache.kafka.common.metadata.PartitionRecord;
import org.apache.kafka.common.metadata.RegisterBrokerRecord;
import org.apache.kafka.common.metadata.RemoveTopicRecord;
import org.apache.kafka.common.metadata.TopicRecord;
import org.apache.kafka.common.metadata.UnregisterBrokerRecord;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.utils.LogContext;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.controller.metrics.QuorumControllerMetrics;
import org.apache.kafka.metadata.BrokerRegistration;
import org.apache.kafka.metadata.FinalizedControllerFeatures;
import org.apache.kafka.metadata.PartitionRegistration;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.kafka.timeline.SnapshotRegistry;

/**
 * Lets Kafka's own controller decide what Ottla's was asked, step by step, and tells the partitions and brokers after
 * each. The first argument is a JSON file with walks, the second the file for the answers. It is in Kafka's package to
 * reach what only its controller may use.
 */
public final class WalkJudge {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        ArrayNode answers = JSON.createArrayNode();
        for (JsonNode walk : JSON.readTree(new File(arguments[0]))) {
            WalkJudge judge = new WalkJudge(walk);
            ArrayNode played = answers.addArray();
            for (JsonNode step : walk.get("steps")) {
                ObjectNode answer = played.addObject();
                try {
                    answer.put("error", 0);
                    judge.play(step, answer);
                } catch (ApiException error) {
                    answer.put("error", Errors.forException(error).code());
                } catch (RuntimeException error) {
                    answer.put("crash", error.toString());
                }
                judge.show(answer);
            }
        }
        JSON.writeValue(new File(arguments[1]), answers);
    }

    private static final class Clock implements Time {
        long nowMs;

        @Override
        public long milliseconds() {
            return nowMs;
        }

        @Override
        public long nanoseconds() {
            return nowMs * 1_000_000;
        }

        @Override
        public void sleep(long ms) {
            throw new UnsupportedOperationException();
        }

        @Override
        public void waitObject(Object object, Supplier<Boolean> condition, long deadlineMs) {
            throw new UnsupportedOperationException();
        }
    }

    private final Clock clock = new Clock();
    private final FeatureControlManager features;
    private final ClusterControlManager cluster;
    private final ConfigurationControlManager configs;
    private final ReplicationControlManager replication;
    private final Map<Uuid, Integer> topics = new TreeMap<>();

    private WalkJudge(JsonNode walk) {
        LogContext log = new LogContext();
        SnapshotRegistry registry = new SnapshotRegistry(log);
        features = new FeatureControlManager.Builder().
            setSnapshotRegistry(registry).
            setQuorumFeatures(
                new QuorumFeatures(3000, QuorumFeatures.defaultSupportedFeatureMap(true), List.of(3000))).
            build();
        for (Map.Entry<String, JsonNode> level : walk.get("features").properties()) {
            features.replay(
                new FeatureLevelRecord().setName(level.getKey()).setFeatureLevel((short) level.getValue().asInt()));
        }
        ReplicationControlManager[] later = new ReplicationControlManager[1];
        cluster = new ClusterControlManager.Builder().
            setLogContext(log).
            setTime(clock).
            setSnapshotRegistry(registry).
            setSessionTimeoutNs(walk.get("session_ms").asLong() * 1_000_000).
            setClusterId(walk.get("cluster_id").asText()).
            setFeatureControlManager(features).
            setMetrics(new QuorumControllerMetrics(Optional.empty(), clock, 9000)).
            setBrokerShutdownHandler(
                (broker, clean, records) -> later[0].handleBrokerShutdown(broker, clean, records)).
            build();
        configs = new ConfigurationControlManager.Builder().
            setLogContext(log).
            setSnapshotRegistry(registry).
            setFeatureControl(features).
            setNodeId(3000).
            setKafkaConfigSchema(kafka.server.KafkaRaftServer.configSchema()).
            build();
        replication = new ReplicationControlManager.Builder().
            setLogContext(log).
            setSnapshotRegistry(registry).
            setConfigurationControl(configs).
            setClusterControl(cluster).
            setFeatureControl(features).
            setMaxElectionsPerImbalance(1000).
            build();
        later[0] = replication;
        for (Map.Entry<String, JsonNode> config : walk.get("cluster_config").properties()) {
            configs.replay(new ConfigRecord().setResourceType(ConfigResource.Type.BROKER.id()).
                setResourceName("").setName(config.getKey()).setValue(config.getValue().asText()));
        }
        cluster.activate();
    }

    private void play(JsonNode step, ObjectNode answer) throws Exception {
        clock.nowMs = step.get("now_ms").asLong();
        ByteBufferAccessor data = new ByteBufferAccessor(
            ByteBuffer.wrap(HexFormat.of().parseHex(step.get("request").asText())));
        short version = (short) step.get("version").asInt();
        switch (step.get("do").asText()) {
            case "register_broker" -> register(new BrokerRegistrationRequestData(data, version), step);
            case "process_broker_heartbeat" -> heartbeat(new BrokerHeartbeatRequestData(data, version), step, answer);
            case "fence" -> {
                List<ApiMessageAndVersion> records = new ArrayList<>();
                replication.handleBrokerFenced(step.get("broker").asInt(), records);
                cluster.heartbeatManager().fence(step.get("broker").asInt());
                replay(records, 0);
            }
            case "unregister_broker" ->
                apply(replication.unregisterBroker(new UnregisterBrokerRequestData(data, version).brokerId()));
            case "create_topics" -> create(new CreateTopicsRequestData(data, version), step);
            case "create_partitions" -> apply(replication.createPartitions(
                context(version), new ArrayList<>(new CreatePartitionsRequestData(data, version).topics())));
            case "delete_topics" -> apply(replication.deleteTopics(
                context(version),
                new DeleteTopicsRequestData(data, version).topics().stream().map(each -> each.topicId()).toList()));
            case "alter_partition" -> alterPartition(new AlterPartitionRequestData(data, version), answer);
            case "alter_partition_reassignments" -> {
                var result = replication.alterPartitionReassignments(
                    new AlterPartitionReassignmentsRequestData(data, version));
                apply(result);
                answer.put("item", result.response().responses().get(0).partitions().get(0).errorCode());
            }
            case "elect_leaders" -> apply(replication.electLeaders(new ElectLeadersRequestData(data, version)));
            case "balance_partition_leaders" -> apply(replication.maybeBalancePartitionLeaders());
            case "elect_unclean_leaders" -> apply(replication.maybeElectUncleanLeaders());
            case "incremental_alter_configs" ->
                alterConfigs(new IncrementalAlterConfigsRequestData(data, version));
            case "assign_replicas_to_dirs" ->
                apply(replication.handleAssignReplicasToDirs(new AssignReplicasToDirsRequestData(data, version)));
            default -> throw new IllegalArgumentException(step.get("do").asText());
        }
    }

    private void register(BrokerRegistrationRequestData request, JsonNode step) {
        Map<String, Short> levels = new HashMap<>(features.finalizedFeatures(Long.MAX_VALUE).featureMap());
        levels.put("kraft.version", (short) 1);
        var result = cluster.registerBroker(
            request, step.get("next_offset").asLong(), new FinalizedControllerFeatures(levels, 0), true);
        apply(result);
    }

    private void heartbeat(BrokerHeartbeatRequestData request, JsonNode step, ObjectNode answer) {
        cluster.checkBrokerEpoch(request.brokerId(), request.brokerEpoch());
        cluster.trackBrokerHeartbeat(request.brokerId(), request.brokerEpoch());
        var result = replication.processBrokerHeartbeat(request, step.get("registered_at").asLong());
        apply(result);
        var reply = result.response();
        if (reply.inControlledShutdown()) {
            cluster.heartbeatManager().maybeUpdateControlledShutdownOffset(
                request.brokerId(), step.get("last_offset").asLong());
        }
        if (reply.shouldShutDown()) {
            // Ottla ends the session of a broker that it lets go; Kafka lets it run out.
            cluster.heartbeatManager().tracker().updateContactTime(
                new BrokerIdAndEpoch(request.brokerId(), request.brokerEpoch()), 0);
        }
        answer.put("item", (reply.isFenced() ? 1 : 0) + (reply.shouldShutDown() ? 2 : 0) + (reply.isCaughtUp() ? 4 : 0));
    }

    private void create(CreateTopicsRequestData request, JsonNode step) throws Exception {
        Set<String> names = Set.of(request.topics().iterator().next().name());
        var result = replication.createTopics(context((short) 7), request, names, true);
        Uuid id = uuid(step.get("topic_id").asText());
        for (ApiMessageAndVersion record : result.records()) {
            if (record.message() instanceof TopicRecord topic) topic.setTopicId(id);
            if (record.message() instanceof PartitionRecord partition) partition.setTopicId(id);
        }
        // Kafka clears the eligible leader replicas of the topic before it has any partition.
        replay(result.records(), 0);
    }

    private void alterPartition(AlterPartitionRequestData request, ObjectNode answer) {
        var result = replication.alterPartition(context((short) 3), request);
        apply(result);
        AlterPartitionResponseData.PartitionData data = result.response().topics().get(0).partitions().get(0);
        answer.put("item", data.errorCode());
    }

    private void alterConfigs(IncrementalAlterConfigsRequestData request) {
        Map<ConfigResource, Map<String, Map.Entry<OpType, String>>> changes = new HashMap<>();
        request.resources().forEach(resource -> {
            Map<String, Map.Entry<OpType, String>> ops = new HashMap<>();
            resource.configs().forEach(each -> ops.put(each.name(),
                new AbstractMap.SimpleImmutableEntry<>(OpType.forId(each.configOperation()), each.value())));
            changes.put(
                new ConfigResource(ConfigResource.Type.forId(resource.resourceType()), resource.resourceName()), ops);
        });
        apply(configs.incrementalAlterConfigs(changes, false, true));
    }

    private void apply(ControllerResult<?> result) {
        replay(result.records(), 0);
    }

    private void replay(List<ApiMessageAndVersion> records, long offset) {
        for (ApiMessageAndVersion each : records) {
            ApiMessage record = each.message();
            if (record instanceof RegisterBrokerRecord it) cluster.replay(it, offset);
            else if (record instanceof UnregisterBrokerRecord it) cluster.replay(it);
            else if (record instanceof BrokerRegistrationChangeRecord it) cluster.replay(it);
            else if (record instanceof ConfigRecord it) configs.replay(it);
            else if (record instanceof PartitionRecord it) replication.replay(it);
            else if (record instanceof PartitionChangeRecord it) replication.replay(it);
            else if (record instanceof ClearElrRecord it) replication.replay(it);
            else if (record instanceof TopicRecord it) {
                replication.replay(it);
                topics.put(it.topicId(), 0);
            } else if (record instanceof RemoveTopicRecord it) {
                replication.replay(it);
                topics.remove(it.topicId());
            } else throw new IllegalArgumentException(record.toString());
        }
    }

    private void show(ObjectNode answer) {
        ObjectNode partitions = answer.putObject("partitions");
        for (Uuid topic : topics.keySet()) {
            for (int number = 0; replication.getPartition(topic, number) != null; number++) {
                PartitionRegistration each = replication.getPartition(topic, number);
                ObjectNode shown = partitions.putObject(hex(topic) + "-" + number);
                shown.set("replicas", JSON.valueToTree(each.replicas));
                shown.set("isr", JSON.valueToTree(each.isr));
                shown.set("removing", JSON.valueToTree(each.removingReplicas));
                shown.set("adding", JSON.valueToTree(each.addingReplicas));
                shown.set("elr", JSON.valueToTree(each.elr));
                shown.set("last_known_elr", JSON.valueToTree(each.lastKnownElr));
                shown.put("leader", each.leader);
                shown.put("leader_epoch", each.leaderEpoch);
                shown.put("partition_epoch", each.partitionEpoch);
                shown.put("recovery", each.leaderRecoveryState.value());
                ArrayNode directories = shown.putArray("directories");
                Arrays.stream(each.directories).forEach(directory -> directories.add(hex(directory)));
            }
        }
        ObjectNode brokers = answer.putObject("brokers");
        for (BrokerRegistration each : cluster.brokerRegistrations().values()) {
            ObjectNode shown = brokers.putObject(Integer.toString(each.id()));
            shown.put("epoch", each.epoch());
            shown.put("fenced", each.fenced());
            shown.put("shutting_down", each.inControlledShutdown());
            shown.put("directories", each.directories().size());
        }
    }

    private static ControllerRequestContext context(short version) {
        return new ControllerRequestContext(
            new RequestHeaderData().setRequestApiVersion(version), KafkaPrincipal.ANONYMOUS, OptionalLong.empty());
    }

    private static String hex(Uuid id) {
        return String.format("%016x%016x", id.getMostSignificantBits(), id.getLeastSignificantBits());
    }

    private static Uuid uuid(String hex) {
        ByteBuffer bytes = ByteBuffer.wrap(HexFormat.of().parseHex(hex));
        return new Uuid(bytes.getLong(), bytes.getLong());
    }
}
