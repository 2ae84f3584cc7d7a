package org.apache.kafka.common.test.junit;

import java.io.IOException;
import java.nio.file.Path;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.function.Function;
import java.util.stream.Collectors;

import kafka.server.KafkaConfig;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry.ConfigSource;
import org.apache.kafka.clients.admin.ListConfigResourcesOptions;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.QuorumInfo;
import org.apache.kafka.clients.admin.TopicListing;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.metadata.LeaderAndIsr;

/** The view of a cluster of processes, from client requests and from the settings of its nodes. */
abstract class OutsideCluster {
    private static final Set<ConfigSource> DYNAMIC = Set.of(ConfigSource.DYNAMIC_BROKER_CONFIG, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG);

    abstract Admin admin();

    abstract Path folder();

    abstract boolean running(int node);

    abstract void startBroker(int node);

    abstract void shutdownBroker(int node);

    abstract int brokerPort(int node);

    abstract int controllerPort(int node);

    /** Returns the settings that a node started with, with later changes. */
    KafkaConfig config(int node) {
        try {
            Properties settings = Utils.loadProps(folder().resolve(node + ".properties").toString());
            if (settings.getProperty("process.roles").contains("broker") && running(node)) {
                ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, String.valueOf(node));
                Config config = ask(admin -> admin.describeConfigs(List.of(broker)).values().get(broker));
                config.entries().stream().filter(entry -> DYNAMIC.contains(entry.source()) && entry.value() != null)
                    .forEach(entry -> settings.setProperty(entry.name(), entry.value()));
            }
            return KafkaConfig.fromProps(settings, false);
        } catch (IOException error) {
            throw new IllegalStateException(error);
        }
    }

    Collection<Node> nodes() {
        return ask(admin -> admin.describeCluster().nodes());
    }

    /** Returns the cluster's state besides topics: features, settings of brokers, groups and metrics, quotas. */
    String state() {
        List<ConfigResource> brokers = nodes().stream().map(node -> new ConfigResource(ConfigResource.Type.BROKER, node.idString())).toList();
        Set<ConfigResource.Type> others = Set.of(ConfigResource.Type.GROUP, ConfigResource.Type.CLIENT_METRICS);
        Set<String> state = new TreeSet<>();
        ask(admin -> admin.describeFeatures().featureMetadata()).finalizedFeatures().forEach((name, level) -> state.add(name + "=" + level));
        ask(admin -> admin.describeConfigs(brokers).all()).forEach((broker, config) -> config.entries().stream()
            .filter(entry -> DYNAMIC.contains(entry.source())).forEach(entry -> state.add(broker.name() + ": " + entry.name() + "=" + entry.value())));
        ask(admin -> admin.listConfigResources(others, new ListConfigResourcesOptions()).all()).forEach(resource -> state.add(resource.toString()));
        ask(admin -> admin.describeClientQuotas(ClientQuotaFilter.all()).entities()).forEach((entity, quota) -> state.add(entity + "=" + quota));
        return state.toString();
    }

    QuorumInfo quorum() {
        return ask(admin -> admin.describeMetadataQuorum().quorumInfo());
    }

    static long metadataEnd(QuorumInfo quorum) {
        return quorum.voters().stream().filter(voter -> voter.replicaId() == quorum.leaderId()).findFirst().orElseThrow().logEndOffset();
    }

    Map<String, Uuid> topicIds() {
        return ask(admin -> admin.listTopics(new ListTopicsOptions().listInternal(true)).listings()).stream()
            .collect(Collectors.toMap(TopicListing::name, TopicListing::topicId));
    }

    Optional<List<TopicPartitionInfo>> partitions(String topic) {
        return known(() -> ask(admin -> admin.describeTopics(List.of(topic)).topicNameValues().get(topic)).partitions());
    }

    Optional<TopicPartitionInfo> partition(String topic, int number) {
        return partitions(topic).flatMap(all -> all.stream().filter(partition -> partition.partition() == number).findFirst());
    }

    Optional<LeaderAndIsr> leaderAndIsr(String topic, int number) {
        return partition(topic, number)
            .map(partition -> new LeaderAndIsr(partition.leader() == null ? -1 : partition.leader().id(), partition.isr().stream().map(Node::id).toList()));
    }

    long offset(TopicPartition partition, OffsetSpec which) {
        return ask(admin -> admin.listOffsets(Map.of(partition, which)).partitionResult(partition)).offset();
    }

    private static <T> Optional<T> known(Callable<T> question) {
        try {
            return Optional.of(question.call());
        } catch (UnknownTopicOrPartitionException error) {
            return Optional.empty();
        } catch (RuntimeException error) {
            throw error;
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    <T> T ask(Function<Admin, KafkaFuture<T>> question) {
        try (Admin admin = admin()) {
            return question.apply(admin).get();
        } catch (ExecutionException error) {
            throw error.getCause() instanceof RuntimeException cause ? cause : new IllegalStateException(error.getCause());
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }
}
