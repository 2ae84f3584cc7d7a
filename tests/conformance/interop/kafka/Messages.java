import com.fasterxml.jackson.databind.JsonNode;
import java.io.File;
import java.io.IOException;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Enumeration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.jar.JarEntry;
import java.util.jar.JarFile;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.protocol.Readable;

/** Kafka's generated messages, found by simple class name in every Kafka jar of the class path. */
final class Messages {
    private static final String CONVERTER = "JsonConverter";
    private static final Map<String, String> CLASS_NAMES = new TreeMap<>();
    private static final Map<String, Kind> KINDS = new HashMap<>();

    /** Creates, reads and formats messages of a class. */
    private record Kind(MethodHandle make, MethodHandle read, MethodHandle toJson, short lowest, short highest) {
        void check(short version) {
            if (version < lowest || version > highest) {
                throw new IllegalArgumentException("version " + version + " is not in " + lowest + "-" + highest);
            }
        }
    }

    static {
        try {
            findClasses();
        } catch (IOException error) {
            throw new ExceptionInInitializerError(error);
        }
    }

    /** Finds message classes by their JSON converters, which only message classes have. */
    private static void findClasses() throws IOException {
        for (String path : System.getProperty("java.class.path").split(File.pathSeparator)) {
            String file = new File(path).getName();
            if (!file.startsWith("kafka") || !file.endsWith(".jar")) {
                continue;
            }
            try (JarFile jar = new JarFile(path)) {
                for (Enumeration<JarEntry> entries = jar.entries(); entries.hasMoreElements();) {
                    String entry = entries.nextElement().getName();
                    if (entry.endsWith(CONVERTER + ".class") && !entry.contains("$")) {
                        String name = entry.substring(0, entry.length() - CONVERTER.length() - 6).replace('/', '.');
                        String before = CLASS_NAMES.put(name.substring(name.lastIndexOf('.') + 1), name);
                        if (before != null) {
                            throw new IOException("two classes of one simple name: " + before + " and " + name);
                        }
                    }
                }
            }
        }
    }

    private static Kind kind(String name) throws Throwable {
        Kind known = KINDS.get(name);
        if (known != null) {
            return known;
        }
        String className = CLASS_NAMES.get(name);
        if (className == null) {
            throw new ClassNotFoundException("no message class is called " + name);
        }
        Class<?> message = Class.forName(className);
        Class<?> converter = Class.forName(className + CONVERTER);
        MethodHandles.Lookup lookup = MethodHandles.publicLookup();
        MethodType toJson = MethodType.methodType(JsonNode.class, message, short.class, boolean.class);
        MethodHandle make = lookup.findConstructor(message, MethodType.methodType(void.class))
            .asType(MethodType.methodType(Message.class));
        Message empty = (Message) make.invokeExact();
        Kind kind = new Kind(
            make,
            lookup.findConstructor(message, MethodType.methodType(void.class, Readable.class, short.class))
                .asType(MethodType.methodType(Message.class, Readable.class, short.class)),
            lookup.findStatic(converter, "write", toJson)
                .asType(MethodType.methodType(JsonNode.class, Message.class, short.class, boolean.class)),
            empty.lowestSupportedVersion(),
            empty.highestSupportedVersion()
        );
        KINDS.put(name, kind);
        return kind;
    }

    /** No fields in; for every class: its simple name, full name, lowest and highest version. */
    static List<byte[]> list(List<byte[]> fields) throws Throwable {
        List<byte[]> all = new ArrayList<>();
        for (Map.Entry<String, String> entry : CLASS_NAMES.entrySet()) {
            Kind kind = kind(entry.getKey());
            for (Object part : List.of(entry.getKey(), entry.getValue(), kind.lowest, kind.highest)) {
                all.add(Peer.bytes(part.toString()));
            }
        }
        return all;
    }

    /** Name, version in; the bytes and the JSON of a message without set fields out. */
    static List<byte[]> makeDefault(List<byte[]> fields) throws Throwable {
        Kind kind = kind(Peer.text(fields.get(0)));
        short version = Short.parseShort(Peer.text(fields.get(1)));
        kind.check(version);
        return written(kind, (Message) kind.make.invokeExact(), version);
    }

    /** Name, version, bytes in; the bytes written again and the JSON out. */
    static List<byte[]> roundtrip(List<byte[]> fields) throws Throwable {
        Kind kind = kind(Peer.text(fields.get(0)));
        short version = Short.parseShort(Peer.text(fields.get(1)));
        kind.check(version);
        ByteBuffer body = ByteBuffer.wrap(fields.get(2));
        Readable readable = new ByteBufferAccessor(body);
        Message message = (Message) kind.read.invokeExact(readable, version);
        if (body.hasRemaining()) {
            throw new IllegalArgumentException(body.remaining() + " bytes are left after the message");
        }
        return written(kind, message, version);
    }

    private static List<byte[]> written(Kind kind, Message message, short version) throws Throwable {
        // JSON never has record batches; without `serializeRecords` it has their size.
        JsonNode json = (JsonNode) kind.toJson.invokeExact(message, version, false);
        byte[] again = Peer.bytes(MessageUtil.toByteBufferAccessor(message, version).buffer());
        return List.of(again, Peer.bytes(json.toString()));
    }
}
