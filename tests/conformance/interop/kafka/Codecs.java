import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.util.List;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.ByteBufferOutputStream;

/** Kafka's compression codecs, as record batches use them. */
final class Codecs {
    /** Codec name, level (empty for the default), magic, bytes in; the compressed bytes out. */
    static List<byte[]> compress(List<byte[]> fields) throws IOException {
        String level = Peer.text(fields.get(1));
        Compression codec = of(Peer.text(fields.get(0)), level.isEmpty() ? null : Integer.valueOf(level));
        byte[] data = fields.get(3);
        ByteBufferOutputStream compressed = new ByteBufferOutputStream(data.length + 512);
        try (OutputStream out = codec.wrapForOutput(compressed, Byte.parseByte(Peer.text(fields.get(2))))) {
            out.write(data);
        }
        return List.of(Peer.bytes(compressed.buffer().flip()));
    }

    /** Codec name, magic, bytes in; the decompressed bytes out. */
    static List<byte[]> decompress(List<byte[]> fields) throws IOException {
        Compression codec = of(Peer.text(fields.get(0)), null);
        byte magic = Byte.parseByte(Peer.text(fields.get(1)));
        try (InputStream in = codec.wrapForInput(ByteBuffer.wrap(fields.get(2)), magic, BufferSupplier.NO_CACHING)) {
            return List.of(in.readAllBytes());
        }
    }

    static Compression of(String name, Integer level) {
        if (level == null) {
            return Compression.of(name).build();
        }
        return switch (name) {
            case "gzip" -> Compression.gzip().level(level).build();
            case "lz4" -> Compression.lz4().level(level).build();
            case "zstd" -> Compression.zstd().level(level).build();
            default -> throw new IllegalArgumentException(name + " has no levels");
        };
    }
}
