import java.io.IOException;
import java.io.PrintWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Kafka's Java clients of a soak. tests/chaos/soak/clients.py has those of librdkafka.
 *
 * SoakClients FOLDER SERVERS SEED ROLE:NAME... : each role runs in a thread and writes its own history in the folder. All
 * roles stop when standard input is closed.
 */
public final class SoakClients {
    private static final String PLAIN = "plain";
    private static final String TRANSACTIONAL = "tx";
    private static final String COPY = "copy";
    private static final int PARTITIONS = 3;
    private static final int PAUSE_MS = 15;
    private static volatile boolean stopping;
    private static volatile boolean failed;

    private final String servers;
    private final String name;
    private final Random random;
    private final PrintWriter history;

    private SoakClients(String folder, String servers, String seed, String name) throws IOException {
        this.servers = servers;
        this.name = name;
        this.random = new Random((seed + " " + name).hashCode());
        this.history = new PrintWriter(Files.newBufferedWriter(
            Path.of(folder, name + ".jsonl"), StandardCharsets.UTF_8, StandardOpenOption.CREATE, StandardOpenOption.APPEND));
    }

    public static void main(String[] arguments) throws Exception {
        List<Thread> threads = new ArrayList<>();
        for (int i = 3; i < arguments.length; i++) {
            String[] role = arguments[i].split(":");
            SoakClients client = new SoakClients(arguments[0], arguments[1], arguments[2], role[1]);
            Thread thread = new Thread(() -> client.run(role[0]), role[1]);
            threads.add(thread);
            thread.start();
        }
        while (System.in.read() >= 0 && !failed) {
            // Ignore the input, and wait for its end.
        }
        stopping = true;
        for (Thread thread : threads) {
            thread.join();
        }
        System.exit(failed ? 1 : 0);
    }

    private void run(String role) {
        try {
            switch (role) {
                case "producer" -> produce(120_000);
                case "hasty-producer" -> produce(6_000);
                case "transactional" -> transact();
                case "tx-reader" -> read();
                case "consumer-member" -> joinGroup("consumer");
                case "classic-member" -> joinGroup("classic");
                case "copier" -> copy();
                default -> throw new IllegalArgumentException(role);
            }
        } catch (Throwable error) {
            failed = true;
            error.printStackTrace();
            note("failed: " + error);
        }
    }

    // -- producers --

    private void produce(int deliveryMs) throws InterruptedException {
        Properties settings = settings();
        settings.put("acks", "all");
        settings.put("enable.idempotence", "true");
        settings.put("linger.ms", "2");
        settings.put("request.timeout.ms", String.valueOf(Math.min(5_000, deliveryMs / 2)));
        settings.put("delivery.timeout.ms", String.valueOf(deliveryMs));
        settings.put("max.block.ms", "10000");
        int[] sent = new int[PARTITIONS];
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings)) {
            while (!stopping) {
                int partition = random.nextInt(PARTITIONS);
                String id = name + "/" + partition + "/" + sent[partition]++;
                send(producer, PLAIN, partition, id);
                Thread.sleep(PAUSE_MS);
            }
            producer.flush();
        }
    }

    private void send(KafkaProducer<String, String> producer, String topic, int partition, String id) {
        String value = id + " " + "x".repeat(random.nextInt(300));
        producer.send(new ProducerRecord<>(topic, partition, null, value), (metadata, error) -> {
            if (error == null) {
                write("ack", fields(topic, partition) + ",\"o\":" + metadata.offset() + ",\"v\":" + text(id));
            } else {
                String why = text(error.getClass().getSimpleName());
                write("fail", fields(topic, partition) + ",\"v\":" + text(id) + ",\"why\":" + why);
            }
        });
    }

    private void transact() throws InterruptedException {
        int number = 0;
        while (!stopping) {
            try (KafkaProducer<String, String> producer = createTransactionalProducer()) {
                boolean isUsable = producer != null;
                while (isUsable && !stopping) {
                    number++;
                    List<String[]> values = new ArrayList<>();
                    int size = 1 + random.nextInt(5);
                    for (int i = 0; i < size; i++) {
                        values.add(new String[] {TRANSACTIONAL, "" + random.nextInt(PARTITIONS), name + "/" + number + "/" + i});
                    }
                    boolean wantsAbort = random.nextInt(4) == 0;
                    isUsable = runTransaction(producer, number, values, wantsAbort, () -> {
                        for (String[] record : values) {
                            send(producer, record[0], Integer.parseInt(record[1]), record[2]);
                        }
                    }).isUsable;
                    Thread.sleep(PAUSE_MS);
                }
            }
        }
    }

    private KafkaProducer<String, String> createTransactionalProducer() {
        Properties settings = settings();
        settings.put("transactional.id", name);
        settings.put("transaction.timeout.ms", "12000");
        settings.put("request.timeout.ms", "5000");
        settings.put("delivery.timeout.ms", "10000");
        settings.put("max.block.ms", "20000");
        KafkaProducer<String, String> producer = new KafkaProducer<>(settings);
        while (!stopping) {
            try {
                producer.initTransactions();
                return producer;
            } catch (TimeoutException error) {
                note("init: " + error);
            } catch (KafkaException error) {
                note("init: " + error);
                break;
            }
        }
        producer.close(Duration.ZERO);
        return null;
    }

    /** How a transaction ended, and whether the producer can be used for another one. */
    private record Outcome(String end, boolean isUsable) {
    }

    private Outcome runTransaction(
            KafkaProducer<String, String> producer, long number, List<String[]> values, boolean wantsAbort, Runnable send) {
        String shown = values.stream()
            .map(record -> "[" + text(record[0]) + "," + record[1] + "," + text(record[2]) + "]")
            .collect(Collectors.joining(",", ",\"values\":[", "]"));
        write("txn", "\"n\":" + number + shown + ",\"end\":\"open\"");
        boolean commitWasSent = false;
        boolean isUsable = true;
        String end;
        try {
            producer.beginTransaction();
            send.run();
            if (wantsAbort) {
                producer.flush();
                abort(producer);
                end = "abort";
            } else {
                producer.flush();
                commitWasSent = true;
                commit(producer);
                end = "commit";
            }
        } catch (KafkaException error) {
            note("transaction: " + error);
            end = commitWasSent ? "unknown" : "abort";
            try {
                abort(producer);
            } catch (KafkaException fatal) {
                note("abort: " + fatal);
                isUsable = false;
            }
        }
        write("txn", "\"n\":" + number + shown + ",\"end\":" + text(end));
        return new Outcome(end, isUsable);
    }

    private void commit(KafkaProducer<String, String> producer) {
        for (int attempt = 0; ; attempt++) {
            try {
                producer.commitTransaction();
                return;
            } catch (TimeoutException error) {
                note("retry: " + error);
                if (attempt == 6) {
                    throw error;
                }
            }
        }
    }

    private void abort(KafkaProducer<String, String> producer) {
        for (int attempt = 0; ; attempt++) {
            try {
                producer.abortTransaction();
                return;
            } catch (TimeoutException error) {
                note("retry: " + error);
                if (attempt == 6) {
                    throw error;
                }
            }
        }
    }

    // -- consumers --

    private void read() {
        Properties settings = settings();
        settings.put("isolation.level", "read_committed");
        settings.put("auto.offset.reset", "none");
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings)) {
            List<TopicPartition> all = new ArrayList<>();
            for (int partition = 0; partition < PARTITIONS; partition++) {
                all.add(new TopicPartition(TRANSACTIONAL, partition));
            }
            consumer.assign(all);
            while (!stopping) {
                try {
                    for (TopicPartition partition : all) {
                        consumer.seek(partition, 0);
                    }
                    break;
                } catch (TimeoutException error) {
                    note("seek: " + error);
                }
            }
            write("assign", "\"a\":1,\"topic\":" + text(TRANSACTIONAL) + ",\"p\":[0,1,2]");
            while (!stopping) {
                recordPolled(Map.of(0, 1, 1, 1, 2, 1), consumer.poll(Duration.ofMillis(200)));
            }
        }
    }

    private void joinGroup(String protocol) {
        Properties settings = settings();
        String group = "java-" + protocol;
        settings.put("group.id", group);
        settings.put("group.protocol", protocol);
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        settings.put("default.api.timeout.ms", "10000");
        if (protocol.equals("classic")) {
            settings.put("session.timeout.ms", "6000");
            settings.put("heartbeat.interval.ms", "500");
        }
        Membership membership = new Membership(group);
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings)) {
            consumer.subscribe(List.of(PLAIN), membership);
            long nextCommit = System.nanoTime();
            while (!stopping) {
                // `poll` calls the listener before it returns records of newly assigned partitions.
                membership.positions.putAll(recordPolled(membership.assignments, consumer.poll(Duration.ofMillis(200))));
                if (!membership.positions.isEmpty() && System.nanoTime() > nextCommit) {
                    nextCommit = System.nanoTime() + random.nextInt(1000) * 1_000_000L;
                    commitOffsets(consumer, group, new TreeMap<>(membership.positions));
                }
            }
        }
    }

    /** The assigned partitions of a member, with the assignment and the position of each. */
    private final class Membership implements ConsumerRebalanceListener {
        private final String group;
        private int number;
        private final Map<Integer, Integer> assignments = new TreeMap<>();
        private final Map<Integer, Long> positions = new TreeMap<>();

        private Membership(String group) {
            this.group = group;
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            number++;
            TreeSet<Integer> assigned = new TreeSet<>();
            partitions.forEach(partition -> assigned.add(partition.partition()));
            assigned.forEach(partition -> assignments.put(partition, number));
            write("assign", "\"a\":" + number + ",\"group\":" + text(group) + ",\"topic\":" + text(PLAIN) + ",\"p\":" + assigned);
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            for (TopicPartition partition : partitions) {
                assignments.remove(partition.partition());
                positions.remove(partition.partition());
            }
        }
    }

    private void commitOffsets(KafkaConsumer<String, String> consumer, String group, Map<Integer, Long> positions) {
        long begun = System.nanoTime();
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        positions.forEach((partition, offset) ->
            offsets.put(new TopicPartition(PLAIN, partition), new OffsetAndMetadata(offset)));
        boolean ok = true;
        try {
            consumer.commitSync(offsets);
        } catch (KafkaException error) {
            note("commit: " + error);
            ok = false;
        }
        String shown = positions.entrySet().stream()
            .map(entry -> "\"" + entry.getKey() + "\":" + entry.getValue())
            .collect(Collectors.joining(",", "{", "}"));
        write("commit", "\"b\":" + begun + ",\"group\":" + text(group) + ",\"topic\":" + text(PLAIN)
            + ",\"offsets\":" + shown + ",\"ok\":" + ok);
    }

    /** Write the records to the history, and return the next offset of each partition. */
    private Map<Integer, Long> recordPolled(Map<Integer, Integer> assignments, Iterable<ConsumerRecord<String, String>> records) {
        Map<TopicPartition, List<String>> polled = new HashMap<>();
        Map<Integer, Long> positions = new TreeMap<>();
        for (ConsumerRecord<String, String> record : records) {
            polled.computeIfAbsent(new TopicPartition(record.topic(), record.partition()), any -> new ArrayList<>())
                .add("[" + record.offset() + "," + text(nameOf(record)) + "]");
            positions.put(record.partition(), record.offset() + 1);
        }
        polled.forEach((partition, shown) -> write("poll", "\"a\":" + assignments.get(partition.partition()) + ","
            + fields(partition.topic(), partition.partition()) + ",\"r\":[" + String.join(",", shown) + "]"));
        return positions;
    }

    /** Read, write and commit the offsets in one transaction. */
    private void copy() {
        Properties settings = settings();
        settings.put("group.id", "copiers");
        settings.put("isolation.level", "read_committed");
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        settings.put("session.timeout.ms", "6000");
        settings.put("heartbeat.interval.ms", "500");
        settings.put("partition.assignment.strategy", "org.apache.kafka.clients.consumer.RangeAssignor");
        settings.put("default.api.timeout.ms", "10000");
        settings.put("max.poll.records", "500");
        long number = System.currentTimeMillis();
        while (!stopping) {
            try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings);
                    KafkaProducer<String, String> producer = createTransactionalProducer()) {
                consumer.subscribe(List.of(PLAIN));
                boolean isUsable = producer != null;
                while (isUsable && !stopping) {
                    List<ConsumerRecord<String, String>> records = new ArrayList<>();
                    consumer.poll(Duration.ofMillis(300)).forEach(records::add);
                    if (!records.isEmpty()) {
                        isUsable = copyRecords(consumer, producer, number++, records);
                    }
                }
            } catch (KafkaException error) {
                note("copy: " + error);
            }
        }
    }

    private boolean copyRecords(
            KafkaConsumer<String, String> consumer,
            KafkaProducer<String, String> producer,
            long number,
            List<ConsumerRecord<String, String>> records) {
        List<String[]> values = new ArrayList<>();
        Map<TopicPartition, OffsetAndMetadata> ends = new HashMap<>();
        for (ConsumerRecord<String, String> record : records) {
            values.add(new String[] {COPY, "" + record.partition(), nameOf(record)});
            ends.put(new TopicPartition(PLAIN, record.partition()), new OffsetAndMetadata(record.offset() + 1));
        }
        boolean wantsAbort = random.nextInt(10) == 0;
        Outcome outcome = runTransaction(producer, number, values, wantsAbort, () -> {
            for (ConsumerRecord<String, String> record : records) {
                producer.send(new ProducerRecord<>(COPY, record.partition(), null, record.value()));
            }
            producer.sendOffsetsToTransaction(ends, consumer.groupMetadata());
        });
        // After an abort, the records must be read again from the committed offsets.
        return outcome.end.equals("commit");
    }

    // -- settings and history --

    private Properties settings() {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", servers);
        settings.put("client.id", name);
        settings.put("key.serializer", StringSerializer.class.getName());
        settings.put("value.serializer", StringSerializer.class.getName());
        settings.put("key.deserializer", StringDeserializer.class.getName());
        settings.put("value.deserializer", StringDeserializer.class.getName());
        settings.put("reconnect.backoff.ms", "10");
        settings.put("reconnect.backoff.max.ms", "100");
        settings.put("retry.backoff.ms", "20");
        settings.put("retry.backoff.max.ms", "200");
        settings.put("socket.connection.setup.timeout.ms", "2000");
        return settings;
    }

    private static String nameOf(ConsumerRecord<String, String> record) {
        return record.value().split(" ", 2)[0];
    }

    private static String fields(String topic, int partition) {
        return "\"topic\":" + text(topic) + ",\"p\":" + partition;
    }

    private static String text(String value) {
        return "\"" + value.replace("\\", "\\\\").replace("\"", "'").replace("\n", " ") + "\"";
    }

    private void note(String what) {
        write("note", "\"what\":" + text(what));
    }

    private synchronized void write(String kind, String more) {
        history.println("{\"e\":\"" + kind + "\",\"t\":" + System.nanoTime() + ",\"who\":" + text(name) + "," + more + "}");
        history.flush();
    }
}
