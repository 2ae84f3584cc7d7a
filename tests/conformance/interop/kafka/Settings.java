import com.fasterxml.jackson.core.type.TypeReference;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.File;
import java.nio.channels.FileChannel;
import java.nio.channels.FileLock;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import kafka.server.KafkaConfig;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.coordinator.group.GroupConfig;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;

/** Kafka's settings, and the small files and names of a log directory. The first field names the question. */
final class Settings {
    private static final ObjectMapper JSON = new ObjectMapper();

    static List<byte[]> ask(List<byte[]> fields) throws Exception {
        String[] given = fields.stream().skip(1).map(Peer::text).toArray(String[]::new);
        return switch (Peer.text(fields.get(0))) {
            case "definitions" -> definitions(given[0]);
            case "parse" -> parse(given[0], given[1], given[2]);
            case "topic" -> topic(object(given[0]), object(given[1]), object(given[2]), given[3].equals("true"));
            case "load properties" -> loadProperties(fields.get(1));
            case "store properties" -> storeProperties(object(given[0]));
            case "try lock" -> tryLock(Path.of(given[0]));
            case "directory" -> directory(given[0]);
            default -> throw new IllegalArgumentException(Peer.text(fields.get(0)));
        };
    }

    /** Returns each setting of a kind as JSON. */
    private static List<byte[]> definitions(String kind) throws Exception {
        List<byte[]> rows = new ArrayList<>();
        for (ConfigDef.ConfigKey key : definition(kind).configKeys().values()) {
            Map<String, Object> row = new TreeMap<>();
            row.put("name", key.name);
            row.put("type", key.type.toString());
            row.put("required", !key.hasDefault());
            row.put("default", key.hasDefault() ? ConfigDef.convertToString(key.defaultValue, key.type) : null);
            row.put("importance", key.importance.toString());
            row.put("internal", key.internalConfig);
            rows.add(JSON.writeValueAsBytes(row));
        }
        return rows;
    }

    /** Parses and formats the value of a setting, or throws Kafka's exception. */
    private static List<byte[]> parse(String kind, String name, String value) {
        ConfigDef.ConfigKey key = definition(kind).configKeys().get(name);
        Object parsed = new ConfigDef().define(key).parse(Map.of(name, value)).get(name);
        return List.of(Peer.bytes(ConfigDef.convertToString(parsed, key.type)));
    }

    /** Returns the effective settings of a topic as JSON, or throws Kafka's validation exception. */
    private static List<byte[]> topic(
        Map<String, String> topic, Map<String, String> broker, Map<String, String> before, boolean remoteStorage
    ) throws Exception {
        Properties properties = new Properties();
        properties.putAll(Map.of("node.id", "1", "process.roles", "broker", "controller.listener.names", "CONTROLLER"));
        properties.putAll(Map.of("controller.quorum.bootstrap.servers", "localhost:9093"));
        properties.putAll(broker);
        Map<String, Object> defaults = new KafkaConfig(properties, false).extractLogConfigMap();
        LogConfig.validate(before, topic, defaults, remoteStorage);
        Properties overrides = new Properties();
        overrides.putAll(topic);
        Map<String, String> shown = new TreeMap<>();
        LogConfig.fromProps(defaults, overrides).values().forEach((name, value) ->
            shown.put(name, ConfigDef.convertToString(value, LogConfig.configType(name).get())));
        return List.of(JSON.writeValueAsBytes(shown));
    }

    private static List<byte[]> loadProperties(byte[] file) throws Exception {
        Properties properties = new Properties();
        properties.load(new ByteArrayInputStream(file));
        return List.of(JSON.writeValueAsBytes(properties));
    }

    private static List<byte[]> storeProperties(Map<String, String> values) throws Exception {
        Properties properties = new Properties();
        properties.putAll(values);
        ByteArrayOutputStream file = new ByteArrayOutputStream();
        properties.store(file, null);
        return List.of(file.toByteArray());
    }

    /** Returns whether a lock file is free. */
    private static List<byte[]> tryLock(Path path) throws Exception {
        try (FileChannel file = FileChannel.open(path, StandardOpenOption.CREATE, StandardOpenOption.WRITE)) {
            FileLock lock = file.tryLock();
            return List.of(Peer.bytes(lock == null ? "held" : "free"));
        }
    }

    private static List<byte[]> directory(String name) throws Exception {
        TopicPartition partition = UnifiedLog.parseTopicPartitionName(new File("/" + name));
        return List.of(Peer.bytes(partition.topic()), Peer.bytes(String.valueOf(partition.partition())));
    }

    private static ConfigDef definition(String kind) {
        return switch (kind) {
            case "broker" -> KafkaConfig.configDef();
            case "topic" -> LogConfig.configDefCopy();
            case "group" -> GroupConfig.CONFIG_DEF;
            default -> throw new IllegalArgumentException(kind);
        };
    }

    private static Map<String, String> object(String json) throws Exception {
        return JSON.readValue(json, new TypeReference<>() { });
    }
}
