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
 * Kafka's own clients at work while nodes and network fail; what tests/chaos/soak/clients.py is for librdkafka.
 *
 * SoakClients FOLDER SERVERS SEED ROLE:NAME... : each role is a thread, with a history of its own in the folder. All come
 * to an end when standard input does.
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
            // Whatever comes: only the end counts.
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
                case "consumer-member" -> belong("consumer");
                case "classic-member" -> belong("classic");
                case "copier" -> copy();
                default -> throw new IllegalArgumentException(role);
            }
        } catch (Throwable error) {
            failed = true;
            error.printStackTrace();
            note("fell over: " + error);
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
        producer.send(new ProducerRecord<>(topic, partition, null, value), (found, error) -> {
            if (error == null) {
                write("ack", where(topic, partition) + ",\"o\":" + found.offset() + ",\"v\":" + text(id));
            } else {
                String why = text(error.getClass().getSimpleName());
                write("fail", where(topic, partition) + ",\"v\":" + text(id) + ",\"why\":" + why);
            }
        });
    }

    private void transact() throws InterruptedException {
        int number = 0;
        while (!stopping) {
            try (KafkaProducer<String, String> producer = transactional()) {
                boolean usable = producer != null;
                while (usable && !stopping) {
                    number++;
                    List<String[]> values = new ArrayList<>();
                    int size = 1 + random.nextInt(5);
                    for (int i = 0; i < size; i++) {
                        values.add(new String[] {TRANSACTIONAL, "" + random.nextInt(PARTITIONS), name + "/" + number + "/" + i});
                    }
                    boolean wantsAbort = random.nextInt(4) == 0;
                    usable = runTransaction(producer, number, values, wantsAbort, () -> {
                        for (String[] each : values) {
                            send(producer, each[0], Integer.parseInt(each[1]), each[2]);
                        }
                    }).isUsable;
                    Thread.sleep(PAUSE_MS);
                }
            }
        }
    }

    private KafkaProducer<String, String> transactional() {
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
    private record Ended(String how, boolean isUsable) {
    }

    private Ended runTransaction(
            KafkaProducer<String, String> producer, long number, List<String[]> values, boolean wantsAbort, Runnable send) {
        String shown = values.stream()
            .map(each -> "[" + text(each[0]) + "," + each[1] + "," + text(each[2]) + "]")
            .collect(Collectors.joining(",", ",\"values\":[", "]"));
        write("txn", "\"n\":" + number + shown + ",\"end\":\"open\"");
        boolean askedToCommit = false;
        boolean usable = true;
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
                askedToCommit = true;
                commit(producer);
                end = "commit";
            }
        } catch (KafkaException error) {
            note("transaction: " + error);
            end = askedToCommit ? "unknown" : "abort";
            try {
                abort(producer);
            } catch (KafkaException fatal) {
                note("abort: " + fatal);
                usable = false;
            }
        }
        write("txn", "\"n\":" + number + shown + ",\"end\":" + text(end));
        return new Ended(end, usable);
    }

    private void commit(KafkaProducer<String, String> producer) {
        for (int attempt = 0; ; attempt++) {
            try {
                producer.commitTransaction();
                return;
            } catch (TimeoutException error) {
                note("again: " + error);
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
                note("again: " + error);
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
                    for (TopicPartition each : all) {
                        consumer.seek(each, 0);
                    }
                    break;
                } catch (TimeoutException error) {
                    note("seek: " + error);
                }
            }
            write("assign", "\"a\":1,\"topic\":" + text(TRANSACTIONAL) + ",\"p\":[0,1,2]");
            while (!stopping) {
                note(Map.of(0, 1, 1, 1, 2, 1), consumer.poll(Duration.ofMillis(200)));
            }
        }
    }

    private void belong(String protocol) {
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
        Assigned assigned = new Assigned(group);
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings)) {
            consumer.subscribe(List.of(PLAIN), assigned);
            long nextCommit = System.nanoTime();
            while (!stopping) {
                // Whatever is assigned or revoked meanwhile is so before the records that are returned.
                assigned.reached.putAll(note(assigned.since, consumer.poll(Duration.ofMillis(200))));
                if (!assigned.reached.isEmpty() && System.nanoTime() > nextCommit) {
                    nextCommit = System.nanoTime() + random.nextInt(1000) * 1_000_000L;
                    commitOffsets(consumer, group, new TreeMap<>(assigned.reached));
                }
            }
        }
    }

    /** Which partitions a member has, since which assignment, and how far it has read them. */
    private final class Assigned implements ConsumerRebalanceListener {
        private final String group;
        private int number;
        private final Map<Integer, Integer> since = new TreeMap<>();
        private final Map<Integer, Long> reached = new TreeMap<>();

        private Assigned(String group) {
            this.group = group;
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            number++;
            TreeSet<Integer> given = new TreeSet<>();
            partitions.forEach(each -> given.add(each.partition()));
            given.forEach(each -> since.put(each, number));
            write("assign", "\"a\":" + number + ",\"group\":" + text(group) + ",\"topic\":" + text(PLAIN) + ",\"p\":" + given);
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            for (TopicPartition each : partitions) {
                since.remove(each.partition());
                reached.remove(each.partition());
            }
        }
    }

    private void commitOffsets(KafkaConsumer<String, String> consumer, String group, Map<Integer, Long> reached) {
        long begun = System.nanoTime();
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        reached.forEach((partition, at) -> offsets.put(new TopicPartition(PLAIN, partition), new OffsetAndMetadata(at)));
        boolean ok = true;
        try {
            consumer.commitSync(offsets);
        } catch (KafkaException error) {
            note("commit: " + error);
            ok = false;
        }
        String shown = reached.entrySet().stream()
            .map(each -> "\"" + each.getKey() + "\":" + each.getValue())
            .collect(Collectors.joining(",", "{", "}"));
        write("commit", "\"b\":" + begun + ",\"group\":" + text(group) + ",\"topic\":" + text(PLAIN)
            + ",\"offsets\":" + shown + ",\"ok\":" + ok);
    }

    private Map<Integer, Long> note(Map<Integer, Integer> since, Iterable<ConsumerRecord<String, String>> found) {
        Map<TopicPartition, List<String>> polled = new HashMap<>();
        Map<Integer, Long> reached = new TreeMap<>();
        for (ConsumerRecord<String, String> each : found) {
            polled.computeIfAbsent(new TopicPartition(each.topic(), each.partition()), any -> new ArrayList<>())
                .add("[" + each.offset() + "," + text(nameOf(each)) + "]");
            reached.put(each.partition(), each.offset() + 1);
        }
        polled.forEach((where, records) -> write("poll", "\"a\":" + since.get(where.partition()) + "," + where(where.topic(), where.partition())
            + ",\"r\":[" + String.join(",", records) + "]"));
        return reached;
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
                    KafkaProducer<String, String> producer = transactional()) {
                consumer.subscribe(List.of(PLAIN));
                boolean goesOn = producer != null;
                while (goesOn && !stopping) {
                    List<ConsumerRecord<String, String>> found = new ArrayList<>();
                    consumer.poll(Duration.ofMillis(300)).forEach(found::add);
                    if (!found.isEmpty()) {
                        goesOn = copyThese(consumer, producer, number++, found);
                    }
                }
            } catch (KafkaException error) {
                note("copy: " + error);
            }
        }
    }

    private boolean copyThese(
            KafkaConsumer<String, String> consumer,
            KafkaProducer<String, String> producer,
            long number,
            List<ConsumerRecord<String, String>> found) {
        List<String[]> values = new ArrayList<>();
        Map<TopicPartition, OffsetAndMetadata> ends = new HashMap<>();
        for (ConsumerRecord<String, String> each : found) {
            values.add(new String[] {COPY, "" + each.partition(), nameOf(each)});
            ends.put(new TopicPartition(PLAIN, each.partition()), new OffsetAndMetadata(each.offset() + 1));
        }
        boolean wantsAbort = random.nextInt(10) == 0;
        Ended ended = runTransaction(producer, number, values, wantsAbort, () -> {
            for (ConsumerRecord<String, String> each : found) {
                producer.send(new ProducerRecord<>(COPY, each.partition(), null, each.value()));
            }
            producer.sendOffsetsToTransaction(ends, consumer.groupMetadata());
        });
        // After an abort, what was read must be read again, from where the group is.
        return ended.how.equals("commit");
    }

    // -- words --

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

    private static String where(String topic, int partition) {
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
