package org.apache.kafka.common.test.junit;

import java.lang.reflect.Method;
import java.util.Collection;
import java.util.Map;

import com.yammer.metrics.core.Meter;
import com.yammer.metrics.core.Metric;
import com.yammer.metrics.core.MetricName;
import com.yammer.metrics.core.MetricsRegistry;
import org.apache.kafka.server.metrics.KafkaYammerMetrics;

/** Counts events of the broker processes in this process's metrics registry, where tests of in-process brokers read them. */
final class OutsideMetrics {
    private static final MetricName UNCLEAN_ELECTIONS =
        KafkaYammerMetrics.getMetricName("kafka.controller", "ControllerStats", "UncleanLeaderElectionsPerSec");

    private OutsideMetrics() {
    }

    /** Count events of this cluster, and stop counting those of the previous cluster. */
    static void watch(OutsideCluster cluster, Collection<Integer> controllers) {
        Meter meter = StandIn.of(Meter.class, "unclean elections", Map.of(
            "count", arguments -> controllers.stream().mapToLong(node -> new OutsideLogs(cluster, node).uncleanElections()).max().orElse(0),
            "stop", arguments -> null));
        MetricsRegistry registry = KafkaYammerMetrics.defaultRegistry();
        registry.removeMetric(UNCLEAN_ELECTIONS);
        try {
            Method add = MetricsRegistry.class.getDeclaredMethod("getOrAdd", MetricName.class, Metric.class);
            add.setAccessible(true);
            add.invoke(registry, UNCLEAN_ELECTIONS, meter);
        } catch (ReflectiveOperationException error) {
            throw new IllegalStateException(error);
        }
    }
}
