package org.apache.kafka.common.test.junit;

import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Proxy;
import java.util.AbstractMap;
import java.util.Collection;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ExecutionException;

import kafka.server.KafkaBroker;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.test.ClusterInstance;
import org.apache.kafka.metadata.LeaderAndIsr;
import org.apache.kafka.metadata.MetadataCache;

/**
 * Brokers by their ids, as tests see them that look into their metadata: what can be asked over the network is answered so.
 *
 * Who walks over all brokers looks into their files and threads, which nobody can from outside: such tests see none.
 */
final class OutsideBrokers extends AbstractMap<Integer, KafkaBroker> {
    private final ClusterInstance cluster;

    OutsideBrokers(ClusterInstance cluster) {
        this.cluster = cluster;
    }

    @Override
    public Set<Entry<Integer, KafkaBroker>> entrySet() {
        return Set.of();
    }

    @Override
    public KafkaBroker get(Object id) {
        return cluster.brokerIds().contains(id) ? broker() : null;
    }

    private KafkaBroker broker() {
        MetadataCache metadata = proxy(MetadataCache.class, (self, method, arguments) -> switch (method.getName()) {
            case "getAliveBrokerNodes" -> List.copyOf(nodes(cluster));
            case "numPartitions" -> partitions(cluster, (String) arguments[0]).map(List::size);
            case "getLeaderAndIsr" -> leaderAndIsr(cluster, (String) arguments[0], (Integer) arguments[1]);
            default -> throw new UnsupportedOperationException(method + " of a broker in a process of its own");
        });
        return proxy(KafkaBroker.class, (self, method, arguments) -> switch (method.getName()) {
            case "metadataCache" -> metadata;
            case "hashCode" -> System.identityHashCode(self);
            case "equals" -> self == arguments[0];
            case "toString" -> "a broker in a process of its own";
            default -> throw new UnsupportedOperationException(method + " of a broker in a process of its own");
        });
    }

    private static Collection<Node> nodes(ClusterInstance cluster) throws ExecutionException, InterruptedException {
        try (Admin admin = cluster.admin()) {
            return admin.describeCluster().nodes().get();
        }
    }

    private static Optional<List<TopicPartitionInfo>> partitions(ClusterInstance cluster, String topic) throws InterruptedException, ExecutionException {
        try (Admin admin = cluster.admin()) {
            TopicDescription found = admin.describeTopics(List.of(topic)).topicNameValues().get(topic).get();
            return Optional.of(found.partitions());
        } catch (ExecutionException error) {
            if (error.getCause() instanceof UnknownTopicOrPartitionException) {
                return Optional.empty();
            }
            throw error;
        }
    }

    private static Optional<LeaderAndIsr> leaderAndIsr(ClusterInstance cluster, String topic, int number) throws InterruptedException, ExecutionException {
        return partitions(cluster, topic).flatMap(all -> all.stream().filter(each -> each.partition() == number).findFirst())
            .map(each -> new LeaderAndIsr(each.leader() == null ? -1 : each.leader().id(), each.isr().stream().map(Node::id).toList()));
    }

    private static <T> T proxy(Class<T> kind, InvocationHandler handler) {
        return kind.cast(Proxy.newProxyInstance(kind.getClassLoader(), new Class<?>[] {kind}, handler));
    }
}
