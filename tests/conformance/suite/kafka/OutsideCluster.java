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

/** What can be known of a cluster of processes: by asking it as any client does, and by reading the settings of its nodes. */
abstract class OutsideCluster {
    private static final Set<ConfigSource> DYNAMIC = Set.of(ConfigSource.DYNAMIC_BROKER_CONFIG, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG);

    abstract Admin admin();

    abstract Path folder();

    abstract boolean running(int node);

    abstract void startBroker(int node);

    abstract void shutdownBroker(int node);

    abstract int brokerPort(int node);

    abstract int controllerPort(int node);

    /** What a node was started with, and what has been altered since. */
    KafkaConfig config(int node) {
        try {
            Properties settings = Utils.loadProps(folder().resolve(node + ".properties").toString());
            if (settings.getProperty("process.roles").contains("broker") && running(node)) {
                ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, String.valueOf(node));
                Config found = ask(admin -> admin.describeConfigs(List.of(broker)).values().get(broker));
                found.entries().stream().filter(each -> DYNAMIC.contains(each.source()) && each.value() != null)
                    .forEach(each -> settings.setProperty(each.name(), each.value()));
            }
            return KafkaConfig.fromProps(settings, false);
        } catch (IOException error) {
            throw new IllegalStateException(error);
        }
    }

    Collection<Node> nodes() {
        return ask(admin -> admin.describeCluster().nodes());
    }

    /** All that is set in the cluster beside topics: features, settings of brokers, groups and metrics, quotas. */
    String state() {
        List<ConfigResource> brokers = nodes().stream().map(each -> new ConfigResource(ConfigResource.Type.BROKER, each.idString())).toList();
        Set<ConfigResource.Type> others = Set.of(ConfigResource.Type.GROUP, ConfigResource.Type.CLIENT_METRICS);
        Set<String> found = new TreeSet<>();
        ask(admin -> admin.describeFeatures().featureMetadata()).finalizedFeatures().forEach((name, level) -> found.add(name + "=" + level));
        ask(admin -> admin.describeConfigs(brokers).all()).forEach((broker, config) -> config.entries().stream()
            .filter(each -> DYNAMIC.contains(each.source())).forEach(each -> found.add(broker.name() + ": " + each.name() + "=" + each.value())));
        ask(admin -> admin.listConfigResources(others, new ListConfigResourcesOptions()).all()).forEach(each -> found.add(each.toString()));
        ask(admin -> admin.describeClientQuotas(ClientQuotaFilter.all()).entities()).forEach((entity, quota) -> found.add(entity + "=" + quota));
        return found.toString();
    }

    QuorumInfo quorum() {
        return ask(admin -> admin.describeMetadataQuorum().quorumInfo());
    }

    static long metadataEnd(QuorumInfo quorum) {
        return quorum.voters().stream().filter(each -> each.replicaId() == quorum.leaderId()).findFirst().orElseThrow().logEndOffset();
    }

    Map<String, Uuid> topicIds() {
        return ask(admin -> admin.listTopics(new ListTopicsOptions().listInternal(true)).listings()).stream()
            .collect(Collectors.toMap(TopicListing::name, TopicListing::topicId));
    }

    Optional<List<TopicPartitionInfo>> partitions(String topic) {
        return known(() -> ask(admin -> admin.describeTopics(List.of(topic)).topicNameValues().get(topic)).partitions());
    }

    Optional<TopicPartitionInfo> partition(String topic, int number) {
        return partitions(topic).flatMap(all -> all.stream().filter(each -> each.partition() == number).findFirst());
    }

    Optional<LeaderAndIsr> leaderAndIsr(String topic, int number) {
        return partition(topic, number)
            .map(each -> new LeaderAndIsr(each.leader() == null ? -1 : each.leader().id(), each.isr().stream().map(Node::id).toList()));
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
