package org.apache.kafka.storage.internals.log;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import java.io.File;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.utils.Throttler;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * Compacts logs with Kafka's own cleaner.
 *
 * The first argument is a JSON file with a list of logs, each a directory and the parameters of a pass; the second
 * is the file for the answers: for each log, the offset where the next pass would start.
 */
public final class CleanerJudge {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final int HASH_AND_OFFSET_BYTES = 24;
    private static final int BUFFER_BYTES = 1 << 20;

    public static void main(String[] arguments) throws Exception {
        ArrayNode answers = JSON.createArrayNode();
        KafkaScheduler scheduler = new KafkaScheduler(1);
        scheduler.startup();
        for (JsonNode task : JSON.readTree(new File(arguments[0]))) {
            answers.add(clean(task, scheduler));
        }
        scheduler.shutdown();
        JSON.writeValue(new File(arguments[1]), answers);
        System.exit(0);
    }

    private static long clean(JsonNode task, KafkaScheduler scheduler) throws Exception {
        Properties settings = new Properties();
        for (Map.Entry<String, JsonNode> setting : task.get("settings").properties()) {
            settings.put(setting.getKey(), setting.getValue().asText());
        }
        UnifiedLog log = UnifiedLog.create(
            new File(task.get("directory").asText()), new LogConfig(settings), 0L, task.get("recovery_point").asLong(),
            scheduler, new BrokerTopicStats(), Time.SYSTEM, Integer.MAX_VALUE,
            new ProducerStateManagerConfig(Integer.MAX_VALUE, false), Integer.MAX_VALUE, new LogDirFailureChannel(1),
            true, Optional.empty());
        log.updateHighWatermark(task.get("high_watermark").asLong());
        long now = task.get("now_ms").asLong();
        Optional<Long> checkpoint =
            task.get("first_dirty").isNull() ? Optional.empty() : Optional.of(task.get("first_dirty").asLong());
        LogCleanerManager.OffsetsToClean offsets = LogCleanerManager.cleanableOffsets(log, checkpoint, now);
        LogToClean chosen =
            new LogToClean(log, offsets.firstDirtyOffset(), offsets.firstUncleanableDirtyOffset(), false);
        long end = -1;
        if (chosen.cleanableBytes() > 0) {
            // The map is filled up to its load factor, so that it holds the given number of keys.
            int slots = task.get("capacity").asInt() * 2;
            Cleaner cleaner = new Cleaner(
                0, new SkimpyOffsetMap(slots * HASH_AND_OFFSET_BYTES), BUFFER_BYTES, BUFFER_BYTES, 0.5,
                new Throttler(Double.MAX_VALUE, 1000, "throttle", "bytes", Time.SYSTEM), Time.SYSTEM, partition -> { });
            end = cleaner.doClean(chosen, now).getKey();
        }
        log.close();
        return end;
    }
}
