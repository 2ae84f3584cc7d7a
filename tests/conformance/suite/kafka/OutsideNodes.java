package org.apache.kafka.common.test.junit;

import java.util.List;
import java.util.Map;
import java.util.OptionalInt;
import java.util.Properties;
import java.util.concurrent.CompletableFuture;

import kafka.cluster.Partition;
import kafka.network.SocketServer;
import kafka.raft.KafkaRaftManager;
import kafka.server.BrokerServer;
import kafka.server.ControllerServer;
import kafka.server.KafkaApis;
import kafka.server.KafkaBroker;
import kafka.server.ReplicaManager;
import kafka.server.SharedServer;
import org.apache.kafka.clients.admin.QuorumInfo;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.controller.Controller;
import org.apache.kafka.coordinator.group.GroupCoordinator;
import org.apache.kafka.metadata.BrokerState;
import org.apache.kafka.metadata.KRaftMetadataCache;
import org.apache.kafka.raft.KafkaRaftClient;
import org.apache.kafka.raft.LeaderAndEpoch;
import org.apache.kafka.raft.LogOffsetMetadata;
import org.apache.kafka.raft.RaftLog;
import org.apache.kafka.server.BrokerLifecycleManager;
import scala.Option;

/**
 * The view of brokers and controllers for tests that inspect them: answers come over the network or from the nodes' folders.
 * Everything else throws, also with Apache Kafka's processes, so that no test passes without a check.
 */
final class OutsideNodes {
    private final OutsideCluster cluster;

    OutsideNodes(OutsideCluster cluster) {
        this.cluster = cluster;
    }

    KafkaBroker broker(int node) {
        String name = "broker " + node;
        KRaftMetadataCache metadata = metadata(name);
        OutsideLogs logs = new OutsideLogs(cluster, node);
        ReplicaManager replicas = replicas(node, metadata, logs);
        return StandIn.of(BrokerServer.class, name, Map.ofEntries(
            Map.entry("config", arguments -> cluster.config(node)),
            Map.entry("clusterId", arguments -> cluster.ask(admin -> admin.describeCluster().clusterId())),
            Map.entry("metadataCache", arguments -> metadata),
            Map.entry("logManager", arguments -> logs.manager()),
            Map.entry("replicaManager", arguments -> replicas),
            Map.entry("boundPort", arguments -> cluster.brokerPort(node)),
            Map.entry("socketServer", arguments -> sockets(node, name)),
            Map.entry("dataPlaneRequestProcessor", arguments -> StandIn.of(KafkaApis.class, name, Map.of(
                "brokerId", none -> node,
                "metadataCache", none -> metadata))),
            Map.entry("groupCoordinator", arguments -> StandIn.of(GroupCoordinator.class, name, Map.of(
                "groupMetadataTopicConfigs", none -> offsetsTopic(node)))),
            Map.entry("lifecycleManager", arguments -> StandIn.of(BrokerLifecycleManager.class, name, Map.of(
                "brokerEpoch", none -> logs.brokerEpoch()))),
            Map.entry("raftManager", arguments -> raft(name)),
            Map.entry("sharedServer", arguments -> StandIn.of(SharedServer.class, name, Map.of("loader", none -> null))),
            Map.entry("brokerState", arguments -> cluster.running(node) ? BrokerState.RUNNING : BrokerState.NOT_RUNNING),
            Map.entry("isShutdown", arguments -> !cluster.running(node)),
            Map.entry("startup", arguments -> {
                cluster.startBroker(node);
                return null;
            }),
            Map.entry("shutdown", arguments -> {
                cluster.shutdownBroker(node);
                return null;
            }),
            Map.entry("awaitShutdown", arguments -> null)));
    }

    ControllerServer controller(int node) {
        String name = "controller " + node;
        return StandIn.of(ControllerServer.class, name, Map.of(
            "config", arguments -> cluster.config(node),
            "socketServer", arguments -> sockets(node, name),
            "raftManager", arguments -> raft(name),
            "controller", arguments -> StandIn.of(Controller.class, name, Map.of(
                "findAllTopicIds", none -> CompletableFuture.completedFuture(cluster.topicIds())))));
    }

    private SocketServer sockets(int node, String name) {
        return StandIn.of(SocketServer.class, name, Map.of(
            "config", arguments -> cluster.config(node),
            "boundPort", arguments -> ((ListenerName) arguments[0]).value().equals("CONTROLLER") ? cluster.controllerPort(node) : cluster.brokerPort(node)));
    }

    private KRaftMetadataCache metadata(String name) {
        return StandIn.of(KRaftMetadataCache.class, name, Map.of(
            "getAliveBrokerNodes", arguments -> List.copyOf(cluster.nodes()),
            "hasAliveBroker", arguments -> cluster.nodes().stream().map(Node::id).anyMatch(arguments[0]::equals),
            "numPartitions", arguments -> cluster.partitions((String) arguments[0]).map(List::size),
            "getLeaderAndIsr", arguments -> cluster.leaderAndIsr((String) arguments[0], (Integer) arguments[1]),
            "getTopicId", arguments -> cluster.topicIds().get(arguments[0]),
            "topicNamesToIds", arguments -> cluster.topicIds(),
            "getAllTopics", arguments -> cluster.topicIds().keySet(),
            "contains", arguments -> arguments[0] instanceof TopicPartition partition
                ? cluster.partition(partition.topic(), partition.partition()).isPresent()
                : cluster.topicIds().containsKey(arguments[0])));
    }

    private ReplicaManager replicas(int node, KRaftMetadataCache metadata, OutsideLogs logs) {
        return StandIn.of(ReplicaManager.class, "broker " + node, Map.of(
            "metadataCache", arguments -> metadata,
            "logManager", arguments -> logs.manager(),
            "localLog", arguments -> logs.log((TopicPartition) arguments[0]),
            "onlinePartition", arguments -> replica(node, (TopicPartition) arguments[0], logs)));
    }

    private Option<Partition> replica(int node, TopicPartition partition, OutsideLogs logs) {
        return Option.apply(cluster.partition(partition.topic(), partition.partition())
            .filter(info -> cluster.running(node) && info.replicas().stream().anyMatch(replica -> replica.id() == node))
            .map(info -> {
                boolean leads = info.leader() != null && info.leader().id() == node;
                return StandIn.of(Partition.class, partition + " of broker " + node, Map.of(
                    "isLeader", arguments -> leads,
                    "leaderIdIfLocal", arguments -> leads ? Option.apply(node) : Option.empty(),
                    "leaderLogIfLocal", arguments -> leads ? logs.log(partition) : Option.empty()));
            }).orElse(null));
    }

    private KafkaRaftManager<?> raft(String name) {
        return StandIn.of(KafkaRaftManager.class, name, Map.of(
            "raftLog", arguments -> StandIn.of(RaftLog.class, name, Map.of(
                "endOffset", none -> new LogOffsetMetadata(OutsideCluster.metadataEnd(cluster.quorum())))),
            "client", arguments -> StandIn.of(KafkaRaftClient.class, name, Map.of(
                "leaderAndEpoch", none -> {
                    QuorumInfo quorum = cluster.quorum();
                    return new LeaderAndEpoch(OptionalInt.of(quorum.leaderId()), (int) quorum.leaderEpoch());
                }))));
    }

    private Properties offsetsTopic(int node) {
        Properties settings = new Properties();
        settings.putAll(Map.of(
            "cleanup.policy", "compact",
            "compression.type", "producer",
            "segment.bytes", String.valueOf(cluster.config(node).groupCoordinatorConfig().offsetsTopicSegmentBytes())));
        return settings;
    }
}
