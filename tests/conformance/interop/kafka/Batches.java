import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.DefaultRecordBatch;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.record.internal.SimpleRecord;
import org.apache.kafka.common.utils.ByteBufferOutputStream;

/** Record batches, read and written by MemoryRecords. In JSON, bytes are hexadecimal digits or null. */
final class Batches {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final HexFormat HEX = HexFormat.of();

    /** Bytes in; a JSON object per batch out. An incomplete batch at the end is skipped, as by a consumer. */
    static List<byte[]> read(List<byte[]> fields) {
        List<byte[]> lines = new ArrayList<>();
        for (RecordBatch batch : MemoryRecords.readableRecords(ByteBuffer.wrap(fields.get(0))).batches()) {
            lines.add(Peer.bytes(describe(batch).toString()));
        }
        return lines;
    }

    private static ObjectNode describe(RecordBatch batch) {
        ObjectNode node = JSON.createObjectNode();
        node.put("size_bytes", batch.sizeInBytes());
        node.put("magic", batch.magic());
        node.put("crc", batch.checksum());
        node.put("crc_valid", batch.isValid());
        node.put("base_offset", batch.baseOffset());
        node.put("last_offset", batch.lastOffset());
        node.put("leader_epoch", batch.partitionLeaderEpoch());
        node.put("compression", batch.compressionType().name);
        node.put("timestamp_type", batch.timestampType().name);
        node.put("base_timestamp", batch instanceof DefaultRecordBatch current ? (Long) current.baseTimestamp() : null);
        node.put("max_timestamp", batch.maxTimestamp());
        node.put("producer_id", batch.producerId());
        node.put("producer_epoch", batch.producerEpoch());
        node.put("base_sequence", batch.baseSequence());
        node.put("last_sequence", batch.lastSequence());
        node.put("transactional", batch.isTransactional());
        node.put("control", batch.isControlBatch());
        node.put("delete_horizon_ms", batch.deleteHorizonMs().isPresent() ? batch.deleteHorizonMs().getAsLong() : null);
        node.put("count", batch.countOrNull());
        ArrayNode records = node.putArray("records");
        node.putNull("error");
        try {
            for (Record record : batch) {
                describe(records.addObject(), record, batch.isControlBatch());
            }
        } catch (RuntimeException error) { // the header of a batch with damaged records is still worth telling
            node.put("error", error.toString());
        }
        return node;
    }

    private static void describe(ObjectNode node, Record record, boolean control) {
        node.put("offset", record.offset());
        node.put("timestamp", record.timestamp());
        node.put("sequence", record.sequence());
        node.put("key", hex(record.key()));
        node.put("value", hex(record.value()));
        node.put("control_type", control ? ControlRecordType.parse(record.key()).name() : null);
        ArrayNode headers = node.putArray("headers");
        for (Header header : record.headers()) {
            headers.addArray().add(header.key()).add(header.value() == null ? null : HEX.formatHex(header.value()));
        }
    }

    private static String hex(ByteBuffer bytes) {
        return bytes == null ? null : HEX.formatHex(Peer.bytes(bytes));
    }

    /** JSON of a batch in, with every setting present; its bytes out. */
    static List<byte[]> write(List<byte[]> fields) throws IOException {
        JsonNode batch = JSON.readTree(fields.get(0));
        if (batch.get("records").isEmpty()) {
            return List.of(emptyBatch(batch));
        }
        MemoryRecordsBuilder builder = builder(batch);
        for (JsonNode record : batch.get("records")) {
            append(builder, record, batch.get("control").booleanValue());
        }
        if (!batch.get("last_offset").isNull()) {
            builder.overrideLastOffset(batch.get("last_offset").longValue());
        }
        return List.of(Peer.bytes(builder.build().buffer()));
    }

    private static MemoryRecordsBuilder builder(JsonNode batch) {
        JsonNode level = batch.get("level");
        return new MemoryRecordsBuilder(
            new ByteBufferOutputStream(1024),
            (byte) batch.get("magic").intValue(),
            Codecs.of(batch.get("compression").textValue(), level.isNull() ? null : Integer.valueOf(level.intValue())),
            TimestampType.forName(batch.get("timestamp_type").textValue()),
            batch.get("base_offset").longValue(),
            batch.get("log_append_time").longValue(),
            batch.get("producer_id").longValue(),
            batch.get("producer_epoch").shortValue(),
            batch.get("base_sequence").intValue(),
            batch.get("transactional").booleanValue(),
            batch.get("control").booleanValue(),
            batch.get("leader_epoch").intValue(),
            Integer.MAX_VALUE,
            batch.get("delete_horizon_ms").asLong(RecordBatch.NO_TIMESTAMP)
        );
    }

    private static void append(MemoryRecordsBuilder builder, JsonNode record, boolean control) {
        long timestamp = record.get("timestamp").longValue();
        if (!record.get("control_type").isNull()) {
            ControlRecordType type = ControlRecordType.valueOf(record.get("control_type").textValue());
            builder.appendControlRecord(timestamp, type, ByteBuffer.wrap(unhex(record.get("value"))));
            return;
        }
        List<Header> headers = new ArrayList<>();
        for (JsonNode header : record.get("headers")) {
            headers.add(new RecordHeader(header.get(0).textValue(), unhex(header.get(1))));
        }
        byte[] key = unhex(record.get("key"));
        byte[] value = unhex(record.get("value"));
        SimpleRecord simple = new SimpleRecord(timestamp, key, value, headers.toArray(new Header[0]));
        if (record.get("offset").isNull()) {
            builder.append(simple);
        } else if (control) {
            builder.appendControlRecordWithOffset(record.get("offset").longValue(), simple);
        } else {
            builder.appendWithOffset(record.get("offset").longValue(), simple);
        }
    }

    private static byte[] unhex(JsonNode digits) {
        return digits.isNull() ? null : HEX.parseHex(digits.textValue());
    }

    /** Returns the header that compaction keeps of a batch without records, for the producer's state. */
    private static byte[] emptyBatch(JsonNode batch) {
        ByteBuffer buffer = ByteBuffer.allocate(DefaultRecordBatch.RECORD_BATCH_OVERHEAD);
        DefaultRecordBatch.writeEmptyHeader(
            buffer,
            (byte) batch.get("magic").intValue(),
            batch.get("producer_id").longValue(),
            batch.get("producer_epoch").shortValue(),
            batch.get("base_sequence").intValue(),
            batch.get("base_offset").longValue(),
            batch.get("last_offset").asLong(batch.get("base_offset").longValue()),
            batch.get("leader_epoch").intValue(),
            TimestampType.forName(batch.get("timestamp_type").textValue()),
            batch.get("log_append_time").longValue(),
            batch.get("transactional").booleanValue(),
            batch.get("control").booleanValue()
        );
        return Peer.bytes(buffer.flip());
    }

    /** JSON of the end of a transaction in; the bytes of its control batch out. */
    static List<byte[]> writeMarker(List<byte[]> fields) throws IOException {
        JsonNode marker = JSON.readTree(fields.get(0));
        MemoryRecords records = MemoryRecords.withEndTransactionMarker(
            marker.get("base_offset").longValue(),
            marker.get("timestamp").longValue(),
            marker.get("leader_epoch").intValue(),
            marker.get("producer_id").longValue(),
            marker.get("producer_epoch").shortValue(),
            new EndTransactionMarker(
                marker.get("commit").booleanValue() ? ControlRecordType.COMMIT : ControlRecordType.ABORT,
                marker.get("coordinator_epoch").intValue()
            )
        );
        return List.of(Peer.bytes(records.buffer()));
    }
}
