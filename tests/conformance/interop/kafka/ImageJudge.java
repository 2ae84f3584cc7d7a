import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import java.io.File;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.image.MetadataDelta;
import org.apache.kafka.image.MetadataImage;
import org.apache.kafka.image.MetadataProvenance;
import org.apache.kafka.image.writer.ImageWriterOptions;
import org.apache.kafka.image.writer.RecordListWriter;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.kafka.server.common.MetadataVersion;

/**
 * Replays records with Kafka's own deltas and images.
 *
 * The first argument is a JSON file with a list of stories; a story is a list of deltas, and a delta a list of records in
 * hex. The second is the file for the answers: for each story, the records that Kafka writes for its last image.
 * If the first argument is "versions", the answer is each metadata.version with its record versions.
 */
public final class ImageJudge {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final HexFormat HEX = HexFormat.of();

    public static void main(String[] arguments) throws Exception {
        ArrayNode answers = JSON.createArrayNode();
        if (arguments[0].equals("versions")) {
            for (MetadataVersion version : MetadataVersion.VERSIONS) {
                answers.addArray().add(version.featureLevel()).add(version.version()).add(version.shortVersion())
                    .add(version.didMetadataChange()).add(version.isProduction())
                    .add(version.registerBrokerRecordVersion()).add(version.partitionRecordVersion())
                    .add(version.partitionChangeRecordVersion());
            }
        } else {
            for (JsonNode story : JSON.readTree(new File(arguments[0]))) {
                tell(story, answers.addArray());
            }
        }
        JSON.writeValue(new File(arguments[1]), answers);
    }

    private static void tell(JsonNode story, ArrayNode answer) {
        MetadataImage image = MetadataImage.EMPTY;
        long offset = -1;
        for (JsonNode step : story) {
            MetadataDelta delta = new MetadataDelta.Builder().setImage(image).build();
            for (JsonNode record : step) {
                byte[] bytes = HEX.parseHex(record.asText());
                ByteBufferAccessor readable = new ByteBufferAccessor(ByteBuffer.wrap(bytes));
                delta.replay(MetadataRecordSerde.INSTANCE.read(readable, bytes.length).message());
                offset++;
            }
            image = delta.apply(new MetadataProvenance(offset, 1, 1, true));
        }
        RecordListWriter writer = new RecordListWriter();
        image.write(writer, new ImageWriterOptions.Builder(image).build());
        for (ApiMessageAndVersion record : writer.records()) {
            ObjectSerializationCache cache = new ObjectSerializationCache();
            ByteBuffer buffer = ByteBuffer.allocate(MetadataRecordSerde.INSTANCE.recordSize(record, cache));
            MetadataRecordSerde.INSTANCE.write(record, cache, new ByteBufferAccessor(buffer));
            answer.add(HEX.formatHex(buffer.array()));
        }
    }
}
