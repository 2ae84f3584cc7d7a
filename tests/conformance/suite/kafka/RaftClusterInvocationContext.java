package org.apache.kafka.common.test.junit;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.Reader;
import java.io.Writer;
import java.net.InetAddress;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.function.Function;
import java.util.stream.Collector;
import java.util.stream.Collectors;
import java.util.stream.Stream;

import kafka.server.ControllerServer;
import kafka.server.KafkaBroker;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.QuorumInfo;
import org.apache.kafka.clients.consumer.GroupProtocol;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.errors.UnsupportedVersionException;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.test.ClusterInstance;
import org.apache.kafka.common.test.api.ClusterConfig;
import org.apache.kafka.common.test.api.Type;
import org.apache.kafka.server.fault.FaultHandlerException;
import org.junit.jupiter.api.extension.AfterTestExecutionCallback;
import org.junit.jupiter.api.extension.BeforeEachCallback;
import org.junit.jupiter.api.extension.Extension;
import org.junit.jupiter.api.extension.TestTemplateInvocationContext;

/**
 * Replaces Kafka's class of this name, which starts brokers in the test's process. Here each broker is a separate process, which the
 * program that runs the suite starts and stops on request, over a connection to its port (the system property "ottla.suite").
 */
public final class RaftClusterInvocationContext implements TestTemplateInvocationContext {
    private static final long THREADS_END_MS = 100;

    private final String name;
    private final ClusterConfig config;
    private final boolean combined;

    public RaftClusterInvocationContext(String name, ClusterConfig config, boolean combined) {
        this.name = name;
        this.config = config;
        this.combined = combined;
    }

    @Override
    public String getDisplayName(int number) {
        return name + " [" + number + "]";
    }

    @Override
    public List<Extension> getAdditionalExtensions() {
        Processes cluster = new Processes(config, combined);
        BeforeEachCallback before = test -> {
            if (config.isAutoStart()) {
                cluster.start();
            }
        };
        AfterTestExecutionCallback after = test -> {
            cluster.stop();
            // A test's thread pools have ended, but their threads may still run; the next check fails if any is left.
            // Kafka's own brokers take longer than that to stop.
            Thread.sleep(THREADS_END_MS);
        };
        return List.of(before, after, new ClusterInstanceParameterResolver(cluster));
    }

    /** The connection to the program that runs the suite: each request and each answer is a line. */
    private static final class Runner {
        private static Socket socket;
        private static BufferedReader answers;

        static synchronized void tell(String... words) {
            try {
                if (socket == null) {
                    socket = new Socket(InetAddress.getLoopbackAddress(), Integer.getInteger("ottla.suite"));
                    answers = new BufferedReader(new InputStreamReader(socket.getInputStream(), StandardCharsets.UTF_8));
                }
                OutputStream out = socket.getOutputStream();
                out.write((String.join(" ", words) + "\n").getBytes(StandardCharsets.UTF_8));
                out.flush();
                String answer = answers.readLine();
                if (!"ok".equals(answer)) {
                    throw new IllegalStateException(String.join(" ", words) + ": " + answer);
                }
            } catch (IOException error) {
                throw new IllegalStateException(error);
            }
        }
    }

    /** A cluster of processes. The cluster of an earlier test is reused if it has the same configuration and can be cleaned. */
    private static final class Processes extends OutsideCluster implements ClusterInstance {
        private static final int KEPT = 3;
        private static final Map<Properties, Left> LEFT_BEHIND = new LinkedHashMap<>();

        private record Left(Path folder, String state) {
        }

        private final ClusterConfig config;
        private final boolean combined;
        private final Properties endpoints = new Properties();
        private final Set<Integer> down = new TreeSet<>();
        private final OutsideNodes nodes = new OutsideNodes(this);
        private Properties wanted;
        private Path folder;
        private String state;
        private boolean started;
        private boolean stopped;
        private boolean harmed;

        Processes(ClusterConfig config, boolean combined) {
            this.config = config;
            this.combined = combined;
        }

        @Override
        public void start() {
            if (started) {
                return;
            }
            started = true;
            try {
                wanted = wanted();
                Left left = LEFT_BEHIND.remove(wanted);
                if (left != null) {
                    folder = left.folder;
                    state = left.state;
                    readEndpoints();
                    if (cleared()) {
                        OutsideMetrics.watch(this, controllerIds());
                        return;
                    }
                    Runner.tell("stop", folder.toString());
                }
                harmed = true;
                folder = Files.createTempDirectory("ottla-suite");
                try (Writer file = Files.newBufferedWriter(folder.resolve("cluster.properties"))) {
                    wanted.store(file, null);
                }
                Runner.tell("start", folder.toString());
                readEndpoints();
                waitForReadyBrokers();
                OutsideMetrics.watch(this, controllerIds());
                state = state();
                harmed = false;
            } catch (UnsupportedVersionException error) {
                harmed = true; // a release that cannot tell how it is: good for one test
            } catch (IOException | InterruptedException error) {
                throw new IllegalStateException(error);
            }
        }

        @Override
        public void stop() {
            if (!started || stopped) {
                return;
            }
            stopped = true;
            if (harmed) {
                Runner.tell("stop", folder.toString());
                return;
            }
            LEFT_BEHIND.put(wanted, new Left(folder, state));
            if (LEFT_BEHIND.size() > KEPT) {
                Runner.tell("stop", LEFT_BEHIND.remove(LEFT_BEHIND.keySet().iterator().next()).folder.toString());
            }
        }

        private Properties wanted() {
            Properties wanted = new Properties();
            wanted.setProperty("brokers", String.valueOf(config.numBrokers()));
            wanted.setProperty("controllers", String.valueOf(config.numControllers()));
            wanted.setProperty("disks", String.valueOf(config.numDisksPerBroker()));
            wanted.setProperty("combined", String.valueOf(combined));
            wanted.setProperty("security", config.brokerSecurityProtocol().name);
            wanted.setProperty("listener", config.brokerListenerName().value());
            wanted.setProperty("release", config.metadataVersion().version());
            config.features().forEach((feature, level) -> wanted.setProperty("feature." + feature.featureName(), level.toString()));
            config.serverProperties().forEach((key, value) -> wanted.setProperty("all." + key, value));
            config.perServerOverrideProperties().forEach((node, settings) ->
                settings.forEach((key, value) -> wanted.setProperty("node." + node + "." + key, value)));
            return wanted;
        }

        private void readEndpoints() throws IOException {
            endpoints.clear();
            try (Reader file = Files.newBufferedReader(folder.resolve("endpoints.properties"))) {
                endpoints.load(file);
            }
        }

        /** Remove the state of the previous test, and return whether the cluster is clean. */
        private boolean cleared() {
            try (Admin admin = admin()) {
                Set<String> groups = admin.listGroups().all().get().stream().map(GroupListing::groupId).collect(Collectors.toSet());
                if (!groups.isEmpty()) {
                    admin.deleteConsumerGroups(groups).all().get();
                }
                ListTopicsOptions internalToo = new ListTopicsOptions().listInternal(true);
                Set<String> topics = admin.listTopics(internalToo).names().get();
                if (!topics.isEmpty()) {
                    admin.deleteTopics(topics).all().get();
                }
                eventually(Duration.ofSeconds(10), () -> admin.listTopics(internalToo).names().get().isEmpty());
                return state().equals(state);
            } catch (ExecutionException | KafkaException | AssertionError error) {
                return false;
            } catch (InterruptedException error) {
                throw new IllegalStateException(error);
            }
        }

        @Override
        public void shutdownBroker(int broker) {
            if (down.add(broker)) {
                harmed = true;
                Runner.tell("stop-broker", folder.toString(), String.valueOf(broker));
            }
        }

        @Override
        public void startBroker(int broker) {
            if (down.remove(broker)) {
                Runner.tell("start-broker", folder.toString(), String.valueOf(broker));
                waitFor(broker);
            }
        }

        /** Wait, as a start in the same process does, until the controller unfences the broker. */
        private void waitFor(int broker) {
            try (Admin admin = admin()) {
                eventually(Duration.ofMinutes(1), () -> admin.describeCluster().nodes().get().stream().anyMatch(node -> node.id() == broker));
            } catch (InterruptedException error) {
                throw new IllegalStateException(error);
            }
        }

        @Override
        public Admin admin() {
            return ClusterInstance.super.admin();
        }

        @Override
        Path folder() {
            return folder;
        }

        @Override
        boolean running(int node) {
            return !down.contains(node);
        }

        @Override
        int brokerPort(int node) {
            return brokerBoundPorts().get(List.copyOf(brokerIds()).indexOf(node));
        }

        @Override
        int controllerPort(int node) {
            return controllerBoundPorts().get(List.copyOf(controllerIds()).indexOf(node));
        }

        @Override
        public boolean started() {
            return started;
        }

        @Override
        public boolean stopped() {
            return stopped;
        }

        @Override
        public Type type() {
            return combined ? Type.CO_KRAFT : Type.KRAFT;
        }

        @Override
        public ClusterConfig config() {
            return config;
        }

        @Override
        public Map<Integer, KafkaBroker> brokers() {
            return brokerIds().stream().collect(inOrder(nodes::broker));
        }

        @Override
        public Map<Integer, ControllerServer> controllers() {
            return controllerIds().stream().collect(inOrder(nodes::controller));
        }

        private static <T> Collector<Integer, ?, Map<Integer, T>> inOrder(Function<Integer, T> node) {
            return Collectors.toMap(id -> id, node, (one, other) -> one, TreeMap::new);
        }

        @Override
        public Set<Integer> brokerIds() {
            return numbers("broker.ids");
        }

        @Override
        public Set<Integer> controllerIds() {
            return numbers("controller.ids");
        }

        private Set<Integer> numbers(String key) {
            return Arrays.stream(endpoints.getProperty(key).split(",")).map(Integer::valueOf).collect(Collectors.toCollection(TreeSet::new));
        }

        @Override
        public List<Integer> brokerBoundPorts() {
            return ports(bootstrapServers());
        }

        @Override
        public List<Integer> controllerBoundPorts() {
            return ports(bootstrapControllers());
        }

        private static List<Integer> ports(String addresses) {
            return Arrays.stream(addresses.split(",")).map(address -> Integer.valueOf(address.substring(address.lastIndexOf(':') + 1))).toList();
        }

        @Override
        public ListenerName clientListener() {
            return config.brokerListenerName();
        }

        @Override
        public ListenerName controllerListenerName() {
            return config.controllerListenerName();
        }

        @Override
        public String bootstrapServers() {
            return endpoints.getProperty("brokers");
        }

        @Override
        public String bootstrapControllers() {
            return endpoints.getProperty("controllers");
        }

        @Override
        public String clusterId() {
            try (Admin admin = admin()) {
                return admin.describeCluster().clusterId().get();
            } catch (ExecutionException | InterruptedException error) {
                throw new IllegalStateException(error);
            }
        }

        @Override
        public Optional<FaultHandlerException> firstFatalException() {
            return Optional.empty();
        }

        @Override
        public Optional<FaultHandlerException> firstNonFatalException() {
            return Optional.empty();
        }

        // Kafka's class reads the brokers' memory; separate processes get client requests.

        @Override
        public void waitForReadyBrokers() throws InterruptedException {
            try (Admin admin = admin()) {
                eventually(Duration.ofMinutes(1), () -> admin.describeCluster().nodes().get().size() >= config.numBrokers());
            }
        }

        @Override
        public void waitTopicCreation(String topic, int partitions) throws InterruptedException {
            try (Admin admin = admin()) {
                eventually(Duration.ofMinutes(1), () -> {
                    var described = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions();
                    return described.size() == partitions && described.stream().allMatch(partition -> partition.leader() != null && partition.leader().id() >= 0);
                });
            }
        }

        @Override
        public void waitTopicDeletion(String topic) throws InterruptedException {
            try (Admin admin = admin()) {
                eventually(Duration.ofMinutes(1), () -> !admin.listTopics().names().get().contains(topic));
            }
        }

        @Override
        public void ensureConsistentMetadata() throws InterruptedException {
            ensureConsistentMetadata(List.of(), List.of());
        }

        @Override
        public void ensureConsistentMetadata(Collection<KafkaBroker> brokers, Collection<ControllerServer> controllers) throws InterruptedException {
            long end = metadataEnd(quorum());
            eventually(Duration.ofMinutes(1), () -> {
                QuorumInfo now = quorum();
                return Stream.concat(now.voters().stream(), now.observers().stream())
                    .filter(replica -> brokerIds().contains(replica.replicaId()) && running(replica.replicaId()))
                    .allMatch(replica -> replica.logEndOffset() >= end);
            });
        }

        @Override
        public void waitAcls(AclBindingFilter filter, Collection<AccessControlEntry> entries) throws InterruptedException {
            try (Admin admin = admin()) {
                eventually(Duration.ofMinutes(1), () -> admin.describeAcls(filter).values().get().stream()
                    .map(AclBinding::entry).collect(Collectors.toSet()).equals(Set.copyOf(entries)));
            }
        }

        @Override
        public Set<GroupProtocol> supportedGroupProtocols() {
            try (Admin admin = admin()) {
                var level = admin.describeFeatures().featureMetadata().get().finalizedFeatures().get("group.version");
                return level != null && level.maxVersionLevel() > 0 ? Set.of(GroupProtocol.CLASSIC, GroupProtocol.CONSUMER) : Set.of(GroupProtocol.CLASSIC);
            } catch (ExecutionException | InterruptedException error) {
                throw new IllegalStateException(error);
            }
        }

        private static void eventually(Duration within, Callable<Boolean> condition) throws InterruptedException {
            long deadline = System.nanoTime() + within.toNanos();
            Exception last = null;
            while (System.nanoTime() < deadline) {
                try {
                    if (condition.call()) {
                        return;
                    }
                } catch (InterruptedException error) {
                    throw error;
                } catch (Exception error) {
                    last = error;
                }
                Thread.sleep(50);
            }
            throw new AssertionError("it did not come true within " + within, last);
        }
    }
}
