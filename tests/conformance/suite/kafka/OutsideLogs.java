package org.apache.kafka.common.test.junit;

import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.stream.Stream;

import kafka.log.LogManager;
import kafka.server.KafkaConfig;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.internals.Topic;
import org.apache.kafka.common.metadata.PartitionChangeRecord;
import org.apache.kafka.common.metadata.RegisterBrokerRecord;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.metadata.LeaderRecoveryState;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.storage.internals.checkpoint.OffsetCheckpointFile;
import org.apache.kafka.storage.internals.log.LogCleaner;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/** The logs of a broker, read from its files. */
final class OutsideLogs {
    private static final String ROLL_GROUP = "ottla-suite-roll";

    private final OutsideCluster cluster;
    private final int node;

    OutsideLogs(OutsideCluster cluster, int node) {
        this.cluster = cluster;
        this.node = node;
    }

    LogManager manager() {
        return StandIn.of(LogManager.class, "broker " + node, Map.of(
            "getLog", arguments -> log((TopicPartition) arguments[0]),
            "getLog$default$2", arguments -> false,
            "liveLogDirs", arguments -> CollectionConverters.asScala(directories()).toSeq(),
            "initialDefaultConfig", arguments -> new LogConfig(cluster.config(node).extractLogConfigMap()),
            "producerStateManagerConfig", arguments -> {
                KafkaConfig config = cluster.config(node);
                return new ProducerStateManagerConfig(
                    config.getInt("producer.id.expiration.ms"), config.getBoolean("transaction.partition.verification.enable"));
            },
            "cleaner", arguments -> StandIn.of(LogCleaner.class, "broker " + node, Map.of(
                "awaitCleaned", wanted -> cleaned((TopicPartition) wanted[0], (Long) wanted[1], (Long) wanted[2])))));
    }

    Option<UnifiedLog> log(TopicPartition partition) {
        return Option.apply(folder(partition).map(folder -> StandIn.of(UnifiedLog.class, partition + " of broker " + node, Map.of(
            "dir", arguments -> folder,
            "topicPartition", arguments -> partition,
            "logStartOffset", arguments -> cluster.offset(partition, OffsetSpec.earliest()),
            "highWatermark", arguments -> cluster.offset(partition, OffsetSpec.latest()),
            "logEndOffset", arguments -> cluster.offset(partition, OffsetSpec.latest()),
            "logSegments", arguments -> segments(folder.toPath()).map(OutsideLogs::segment).toList(),
            "roll", arguments -> roll(partition)))).orElse(null));
    }

    /** Returns the epoch of the broker's last registration in its copy of the metadata. */
    long brokerEpoch() {
        return metadata().stream().filter(RegisterBrokerRecord.class::isInstance).map(RegisterBrokerRecord.class::cast)
            .filter(registration -> registration.brokerId() == node).reduce((first, next) -> next).orElseThrow().brokerEpoch();
    }

    /** Returns the number of unclean leader elections: such a leader is marked as recovering. */
    long uncleanElections() {
        return metadata().stream().filter(record -> record instanceof PartitionChangeRecord change
            && change.leaderRecoveryState() == LeaderRecoveryState.RECOVERING.value()).count();
    }

    /** Returns the records in the node's copy of the metadata. */
    private List<ApiMessage> metadata() {
        List<ApiMessage> messages = new ArrayList<>();
        TopicPartition metadata = new TopicPartition(Topic.CLUSTER_METADATA_TOPIC_NAME, 0);
        for (Path file : segments(folder(metadata).orElseThrow().toPath()).toList()) {
            try (FileRecords records = FileRecords.open(file.toFile())) {
                for (RecordBatch batch : records.batches()) {
                    if (!batch.isControlBatch()) {
                        batch.forEach(record ->
                            messages.add(MetadataRecordSerde.INSTANCE.read(new ByteBufferAccessor(record.value()), record.valueSize()).message()));
                    }
                }
            } catch (IOException error) {
                throw new IllegalStateException(error);
            }
        }
        return messages;
    }

    /** Makes the next append roll a segment, because no request rolls one directly; in groups' logs the append is a commit. */
    private LogSegment roll(TopicPartition partition) throws InterruptedException {
        if (!partition.topic().equals(Topic.GROUP_METADATA_TOPIC_NAME)) {
            throw new UnsupportedOperationException("a new segment of " + partition + " in a process of its own");
        }
        ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, partition.topic());
        ConfigEntry soon = new ConfigEntry("segment.ms", "100");
        cluster.ask(admin -> admin.incrementalAlterConfigs(Map.of(topic, List.of(new AlterConfigOp(soon, AlterConfigOp.OpType.SET)))).all());
        Thread.sleep(500);
        cluster.ask(admin -> admin.alterConsumerGroupOffsets(ROLL_GROUP, Map.of(partition, new OffsetAndMetadata(0))).all());
        cluster.ask(admin -> admin.incrementalAlterConfigs(Map.of(topic, List.of(new AlterConfigOp(soon, AlterConfigOp.OpType.DELETE)))).all());
        return null;
    }

    private boolean cleaned(TopicPartition partition, long offset, long withinMs) throws Exception {
        long deadline = System.nanoTime() + Duration.ofMillis(withinMs).toNanos();
        File checkpoint = new File(folder(partition).orElseThrow().getParentFile(), "cleaner-offset-checkpoint");
        while (System.nanoTime() < deadline) {
            if (checkpoint.exists() && new OffsetCheckpointFile(checkpoint, null).read().getOrDefault(partition, 0L) >= offset) {
                return true;
            }
            Thread.sleep(100);
        }
        return false;
    }

    private List<File> directories() {
        return cluster.config(node).logDirs().stream().map(File::new).toList();
    }

    private Optional<File> folder(TopicPartition partition) {
        return directories().stream().map(directory -> new File(directory, partition.toString())).filter(File::isDirectory).findFirst();
    }

    private static Stream<Path> segments(Path folder) {
        try (Stream<Path> files = Files.list(folder)) {
            return files.filter(file -> file.toString().endsWith(".log")).sorted(Comparator.naturalOrder()).toList().stream();
        } catch (IOException error) {
            throw new IllegalStateException(error);
        }
    }

    private static LogSegment segment(Path file) {
        return StandIn.of(LogSegment.class, file.toString(), Map.of("log", arguments -> FileRecords.open(file.toFile())));
    }
}
