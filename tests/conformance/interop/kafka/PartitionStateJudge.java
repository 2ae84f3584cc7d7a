package org.apache.kafka.storage.internals.log;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.TreeMap;
import java.util.concurrent.ScheduledFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.checkpoint.LeaderEpochCheckpointFile;
import org.apache.kafka.storage.internals.epoch.LeaderEpochFileCache;

/**
 * Runs scripts against Kafka's own producer state, transaction index and leader epochs.
 *
 * The first argument is a JSON file with a list of scripts, the second the file for the answers: for each script a list
 * with the answer to each step. It is in Kafka's package because it uses package-private members.
 */
public final class PartitionStateJudge {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final HexFormat HEX = HexFormat.of();
    private static final TopicPartition PARTITION = new TopicPartition("topic", 0);

    interface Player {
        void play(String what, JsonNode step, ObjectNode answer) throws Exception;
    }

    public static void main(String[] arguments) throws Exception {
        ArrayNode answers = JSON.createArrayNode();
        for (JsonNode script : JSON.readTree(new File(arguments[0]))) {
            Player player = player(script);
            ArrayNode played = answers.addArray();
            for (JsonNode step : script.get("steps")) {
                ObjectNode answer = played.addObject();
                answer.putNull("error");
                try {
                    player.play(step.get("do").asText(), step, answer);
                } catch (RuntimeException error) {
                    answer.put("error", error.getClass().getSimpleName());
                }
            }
        }
        JSON.writeValue(new File(arguments[1]), answers);
    }

    private static Player player(JsonNode script) throws IOException {
        File path = new File(script.get("path").asText());
        return switch (script.get("kind").asText()) {
            case "producers" -> new Producers(path, script.get("expiration_ms").asInt());
            case "aborted" -> new Aborted(new TransactionIndex(script.get("base_offset").asLong(), path));
            case "epochs" -> new Epochs(path);
            default -> throw new IllegalArgumentException(script.get("kind").asText());
        };
    }

    /** Updates the producer state as UnifiedLog does, without a log. */
    private static final class Producers implements Player {
        private final File directory;
        private final ProducerStateManagerConfig config;
        private ProducerStateManager state;

        Producers(File directory, int expirationMs) throws IOException {
            this.directory = directory;
            config = new ProducerStateManagerConfig(expirationMs, false);
            state = open();
        }

        private ProducerStateManager open() throws IOException {
            return new ProducerStateManager(PARTITION, directory, 60_000, config, Time.SYSTEM);
        }

        @Override
        public void play(String what, JsonNode step, ObjectNode answer) throws Exception {
            try {
                switch (what) {
                    case "append" -> append(step, answer);
                    case "high_watermark" -> state.onHighWatermarkUpdated(step.get("offset").asLong());
                    case "log_start" -> state.onLogStartOffsetIncremented(step.get("offset").asLong());
                    case "expire" -> state.removeExpiredProducers(step.get("now_ms").asLong());
                    case "load" -> load(step.get("end").asLong(), step.get("now_ms").asLong());
                    case "reload" -> reload(step.get("now_ms").asLong(), answer);
                    default -> throw new IllegalArgumentException(what);
                }
            } finally {
                describe(answer);
            }
        }

        private void append(JsonNode step, ObjectNode answer) {
            AppendOrigin origin = AppendOrigin.valueOf(step.get("origin").asText());
            short version = (short) step.get("transaction_version").asInt();
            ByteBuffer bytes = ByteBuffer.wrap(HEX.parseHex(step.get("records").asText()));
            Map<Long, ProducerAppendInfo> updated = new HashMap<>();
            List<CompletedTxn> completed = new ArrayList<>();
            long end = state.mapEndOffset();
            for (MutableRecordBatch batch : MemoryRecords.readableRecords(bytes).batches()) {
                if (origin == AppendOrigin.CLIENT) {
                    Optional<BatchMetadata> duplicate =
                        state.lastEntry(batch.producerId()).flatMap(entry -> entry.findDuplicateBatch(batch));
                    if (duplicate.isPresent()) {
                        describe(duplicate.get(), answer.putArray("duplicate"));
                        return;
                    }
                }
                UnifiedLog.updateProducers(state, batch, updated, Optional.empty(), origin, version)
                    .ifPresent(completed::add);
                end = batch.nextOffset();
            }
            updated.values().forEach(state::update);
            ArrayNode transactions = answer.putArray("completed");
            for (CompletedTxn done : completed) {
                transactions.addArray().add(done.producerId()).add(done.firstOffset()).add(done.lastOffset())
                    .add(done.isAborted()).add(state.lastStableOffset(done));
                state.completeTxn(done);
            }
            state.updateMapEndOffset(end);
        }

        private void reload(long nowMs, ObjectNode answer) throws IOException {
            long end = state.mapEndOffset();
            File file = LogFileUtils.producerSnapshotFile(directory, end);
            Files.deleteIfExists(file.toPath());
            ProducerStateManager.writeSnapshot(file, state.activeProducers(), true);
            answer.put("file", file.getName());
            answer.put("snapshot", HEX.formatHex(Files.readAllBytes(file.toPath())));
            load(end, nowMs);
        }

        /** Loads the latest snapshot in the directory. */
        private void load(long end, long nowMs) throws IOException {
            state = open();
            // A state that already ends at the snapshot's offset would not be loaded.
            state.updateMapEndOffset(-1);
            state.truncateAndReload(-1, end, nowMs);
        }

        private void describe(ObjectNode answer) {
            ArrayNode producers = answer.putArray("producers");
            new TreeMap<>(state.activeProducers()).forEach((producerId, entry) -> {
                ArrayNode fields = producers.addArray().add(producerId).add(entry.producerEpoch())
                    .add(entry.coordinatorEpoch()).add(entry.lastTimestamp());
                add(fields, entry.currentTxnFirstOffset());
                ArrayNode batches = fields.addArray();
                entry.batchMetadata().forEach(batch -> describe(batch, batches.addArray()));
            });
            answer.put("map_end_offset", state.mapEndOffset());
            ArrayNode firsts = answer.putArray("firsts");
            add(firsts, state.firstUndecidedOffset());
            add(firsts, state.firstUnstableOffset().map(o -> OptionalLong.of(o.messageOffset)).orElse(OptionalLong.empty()));
        }

        private static void add(ArrayNode fields, OptionalLong value) {
            if (value.isPresent()) {
                fields.add(value.getAsLong());
            } else {
                fields.addNull();
            }
        }

        private static void describe(BatchMetadata batch, ArrayNode fields) {
            fields.add(batch.lastSeq()).add(batch.lastOffset()).add(batch.offsetDelta()).add(batch.timestamp());
        }
    }

    private record Aborted(TransactionIndex index) implements Player {
        @Override
        public void play(String what, JsonNode step, ObjectNode answer) throws Exception {
            switch (what) {
                case "append" -> index.append(new AbortedTxn(step.get("entry").get(0).asLong(),
                    step.get("entry").get(1).asLong(), step.get("entry").get(2).asLong(), step.get("entry").get(3).asLong()));
                case "truncate" -> index.truncateTo(step.get("offset").asLong());
                case "reset" -> index.reset();
                case "check" -> index.sanityCheck();
                case "read" -> describe(index.allAbortedTxns(), answer);
                case "collect" -> {
                    TxnIndexSearchResult result =
                        index.collectAbortedTxns(step.get("from").asLong(), step.get("to").asLong());
                    describe(result.abortedTransactions(), answer);
                    answer.put("complete", result.isComplete());
                }
                case "close" -> {
                    index.flush();
                    index.close();
                }
                default -> throw new IllegalArgumentException(what);
            }
        }

        private static void describe(List<AbortedTxn> aborted, ObjectNode answer) {
            ArrayNode entries = answer.putArray("entries");
            aborted.forEach(entry -> entries.addArray().add(entry.producerId()).add(entry.firstOffset())
                .add(entry.lastOffset()).add(entry.lastStableOffset()));
        }
    }

    /** Runs background work, such as writing truncations, immediately. */
    private static final class AtOnce implements Scheduler {
        @Override
        public void startup() {
        }

        @Override
        public void shutdown() {
        }

        @Override
        public void resizeThreadPool(int size) {
        }

        @Override
        public ScheduledFuture<?> schedule(String name, Runnable task, long delayMs, long periodMs) {
            task.run();
            return null;
        }
    }

    private static final class Epochs implements Player {
        private final LeaderEpochFileCache cache;

        Epochs(File directory) throws IOException {
            File file = LeaderEpochCheckpointFile.newFile(directory);
            LeaderEpochCheckpointFile checkpoint = new LeaderEpochCheckpointFile(file, new LogDirFailureChannel(1));
            cache = new LeaderEpochFileCache(PARTITION, checkpoint, new AtOnce());
        }

        @Override
        public void play(String what, JsonNode step, ObjectNode answer) {
            switch (what) {
                case "assign" -> cache.assign(step.get("epoch").asInt(), step.get("offset").asLong());
                case "truncate_from_end" -> cache.truncateFromEndAsyncFlush(step.get("offset").asLong());
                case "truncate_from_start" -> cache.truncateFromStartAsyncFlush(step.get("offset").asLong());
                case "end_offset_for" -> {
                    Map.Entry<Integer, Long> result =
                        cache.endOffsetFor(step.get("epoch").asInt(), step.get("offset").asLong());
                    answer.putArray("found").add(result.getKey()).add(result.getValue());
                }
                case "epoch_for_offset" ->
                    answer.put("found", cache.epochForOffset(step.get("offset").asLong()).orElse(-1));
                default -> throw new IllegalArgumentException(what);
            }
            ArrayNode entries = answer.putArray("entries");
            cache.epochEntries().forEach(entry -> entries.addArray().add(entry.epoch()).add(entry.startOffset()));
            answer.put("latest", cache.latestEpoch().orElse(-1));
            answer.put("previous", cache.previousEpoch().orElse(-1));
        }
    }
}
