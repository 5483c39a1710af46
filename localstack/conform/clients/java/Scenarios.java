import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** The scenarios, and what they share: clients, records, comparisons. */
final class Scenarios {
    final Map<String, Driver.Scenario> all = new LinkedHashMap<>();
    final String bootstrap, prefix;
    /** last tells where a scenario is, for one that hangs. */
    volatile String last = "start";

    Scenarios(String bootstrap, String prefix) {
        this.bootstrap = bootstrap;
        this.prefix = prefix;
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) all.put("codec-" + codec, () -> codec(codec));
        all.put("shapes", this::shapes);
        all.put("idempotent", this::idempotent);
        all.put("seek-times", this::seekTimes);
        all.put("pause-resume", this::pauseResume);
        all.put("topic-deleted", this::topicDeleted);
        new AdminScenarios(this);
        new LoadScenarios(this);
    }

    String topic(String name) { return prefix + "-" + name; }

    Properties common() {
        Properties p = new Properties();
        p.put("bootstrap.servers", bootstrap);
        p.put("retry.backoff.ms", "50");
        p.put("metadata.max.age.ms", "5000");
        return p;
    }

    KafkaProducer<byte[], byte[]> producer(String codec, Map<String, String> more) {
        Properties p = common();
        p.put("acks", "all");
        p.put("compression.type", codec);
        p.put("linger.ms", "5");
        p.put("delivery.timeout.ms", "40000");
        p.put("request.timeout.ms", "10000");
        p.putAll(more);
        return new KafkaProducer<>(p, new ByteArraySerializer(), new ByteArraySerializer());
    }

    KafkaConsumer<byte[], byte[]> consumer(String group, Map<String, String> more) {
        Properties p = common();
        if (group != null) p.put("group.id", group);
        p.put("enable.auto.commit", "false");
        p.put("auto.offset.reset", "earliest");
        p.put("allow.auto.create.topics", "false");
        if (!more.containsKey("group.protocol")) { // in the newer protocol the broker sets these
            p.put("heartbeat.interval.ms", "300");
            p.put("session.timeout.ms", "10000");
        }
        p.putAll(more);
        return new KafkaConsumer<>(p, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    KafkaConsumer<byte[], byte[]> reader(String topic, int partitions) {
        KafkaConsumer<byte[], byte[]> c = consumer(null, Map.of());
        c.assign(Driver.upTo(partitions).stream().map(p -> new TopicPartition(topic, p)).collect(Collectors.toList()));
        return c;
    }

    static byte[] bytes(String s) { return s.getBytes(StandardCharsets.UTF_8); }

    static String text(byte[] b) { return b == null ? null : new String(b, StandardCharsets.UTF_8); }

    static List<ProducerRecord<byte[], byte[]>> numbered(String topic, int n, int partitions) {
        List<ProducerRecord<byte[], byte[]>> out = new ArrayList<>();
        for (int i = 0; i < n; i++) {
            int p = i % partitions;
            out.add(new ProducerRecord<>(topic, p, bytes("key-" + i), bytes(p + ":" + i / partitions + ":" + "thermocline ".repeat(8))));
        }
        return out;
    }

    /** send waits for every acknowledgement. */
    static void send(KafkaProducer<byte[], byte[]> p, List<ProducerRecord<byte[], byte[]>> records) throws Exception {
        List<Future<RecordMetadata>> acks = new ArrayList<>();
        for (ProducerRecord<byte[], byte[]> r : records) acks.add(p.send(r));
        p.flush();
        for (Future<RecordMetadata> f : acks) {
            try {
                f.get();
            } catch (ExecutionException e) {
                throw (Exception) e.getCause();
            }
        }
    }

    void sendPlain(List<ProducerRecord<byte[], byte[]>> records) throws Exception {
        try (KafkaProducer<byte[], byte[]> p = producer("none", Map.of())) {
            send(p, records);
        }
    }

    /** collect polls until n records are there, and expects no more. */
    List<ConsumerRecord<byte[], byte[]>> collect(KafkaConsumer<byte[], byte[]> c, int n) {
        List<ConsumerRecord<byte[], byte[]>> out = new ArrayList<>();
        while (out.size() < n) {
            last = out.size() + " of " + n + " records read";
            if (Thread.interrupted()) throw new AssertionError(last);
            c.poll(Duration.ofMillis(500)).forEach(out::add);
        }
        c.poll(Duration.ofMillis(50)).forEach(out::add);
        Driver.check(out.size() == n, "%d records read, expected %d", out.size(), n);
        return out;
    }

    List<ConsumerRecord<byte[], byte[]>> readAll(String topic, int partitions, int n) {
        try (KafkaConsumer<byte[], byte[]> c = reader(topic, partitions)) {
            return collect(c, n);
        }
    }

    static void sameInOrder(List<ProducerRecord<byte[], byte[]>> sent, List<ConsumerRecord<byte[], byte[]>> got) {
        Map<Integer, List<ProducerRecord<byte[], byte[]>>> want = new HashMap<>();
        for (ProducerRecord<byte[], byte[]> r : sent) want.computeIfAbsent(r.partition(), k -> new ArrayList<>()).add(r);
        Map<Integer, Integer> next = new HashMap<>();
        for (ConsumerRecord<byte[], byte[]> r : got) {
            int i = next.merge(r.partition(), 1, Integer::sum) - 1;
            Driver.check(r.offset() == i, "partition %d: offset %d where %d was expected", r.partition(), r.offset(), i);
            ProducerRecord<byte[], byte[]> w = want.get(r.partition()).get(i);
            String where = "partition " + r.partition() + ", offset " + i;
            Driver.check(Arrays.equals(w.key(), r.key()), "%s: another key than was sent", where);
            Driver.check(Arrays.equals(w.value(), r.value()), "%s: another value than was sent", where);
            Driver.check(Arrays.equals(w.headers().toArray(), r.headers().toArray()), "%s: headers %s, sent %s", where, r.headers(), w.headers());
        }
        Driver.check(got.size() == sent.size(), "%d records read, %d sent", got.size(), sent.size());
    }

    private void codec(String codec) throws Exception {
        String topic = topic("codec-" + codec);
        AdminScenarios.create(this, topic, 3, Map.of());
        List<ProducerRecord<byte[], byte[]>> sent = numbered(topic, 1500, 3);
        try (KafkaProducer<byte[], byte[]> p = producer(codec, Map.of())) {
            send(p, sent);
        }
        sameInOrder(sent, readAll(topic, 3, sent.size()));
    }

    private void idempotent() throws Exception {
        String topic = topic("idempotent");
        AdminScenarios.create(this, topic, 3, Map.of());
        List<ProducerRecord<byte[], byte[]>> sent = numbered(topic, 6000, 3);
        try (KafkaProducer<byte[], byte[]> p = producer("none", Map.of("batch.size", "2000"))) {
            send(p, sent);
        }
        sameInOrder(sent, readAll(topic, 3, sent.size()));
    }

    static byte[] filler(int n) {
        byte[] out = new byte[n];
        int x = 1;
        for (int i = 0; i < n; i++) {
            x = x * 1664525 + 1013904223;
            out[i] = (byte) ('a' + (x >>> 24) % 26);
        }
        return out;
    }

    private void shapes() throws Exception {
        String topic = topic("shapes");
        AdminScenarios.create(this, topic, 1, Map.of());
        List<Header> headers = List.of(new RecordHeader("h", bytes("a")), new RecordHeader("h", bytes("b")),
            new RecordHeader("empty", new byte[0]), new RecordHeader("null", (byte[]) null));
        List<ProducerRecord<byte[], byte[]>> sent = new ArrayList<>(List.of(
            new ProducerRecord<>(topic, 0, null, bytes("no key")),
            new ProducerRecord<>(topic, 0, bytes("tombstone"), null),
            new ProducerRecord<>(topic, 0, new byte[0], new byte[0]),
            new ProducerRecord<>(topic, 0, null, bytes("x")),
            new ProducerRecord<>(topic, 0, bytes("with headers"), bytes("v"), headers),
            new ProducerRecord<>(topic, 0, bytes("ключ".repeat(100)), bytes("long key")),
            new ProducerRecord<>(topic, 0, null, filler(1_048_000))));
        try (KafkaProducer<byte[], byte[]> p = producer("none", Map.of("max.request.size", "2097152", "linger.ms", "0"))) {
            for (ProducerRecord<byte[], byte[]> r : sent) send(p, List.of(r));
            refused("a record of 1100000 bytes", () -> {
                send(p, List.of(new ProducerRecord<>(topic, 0, null, filler(1_100_000))));
                return null;
            });
            ProducerRecord<byte[], byte[]> after = new ProducerRecord<>(topic, 0, null, bytes("after the refused one"));
            send(p, List.of(after));
            sent.add(after);
        }
        sameInOrder(sent, readAll(topic, 1, sent.size()));
    }

    /** refused expects an error. */
    static void refused(String what, Callable<Void> f) {
        try {
            f.call();
        } catch (Exception e) {
            return;
        }
        throw new AssertionError(what + " was accepted");
    }

    private void seekTimes() throws Exception {
        String topic = topic("seek-times");
        AdminScenarios.create(this, topic, 1, Map.of());
        long base = System.currentTimeMillis() - 3_600_000;
        List<ProducerRecord<byte[], byte[]>> sent = new ArrayList<>();
        for (int i = 0; i < 100; i++) sent.add(new ProducerRecord<>(topic, 0, base + i * 1000L, null, bytes("0:" + i)));
        sendPlain(sent);
        TopicPartition tp = new TopicPartition(topic, 0);
        try (KafkaConsumer<byte[], byte[]> c = reader(topic, 1)) {
            collect(c, 100);
            for (int i : new int[] {0, 10, 99}) {
                OffsetAndTimestamp at = c.offsetsForTimes(Map.of(tp, base + i * 1000L - 1)).get(tp);
                Driver.check(at != null && at.offset() == i && at.timestamp() == base + i * 1000L, "offset for time of record %d: %s", i, at);
            }
            OffsetAndTimestamp none = c.offsetsForTimes(Map.of(tp, base + 3_600_000L)).get(tp);
            Driver.check(none == null, "offset for a time after the last record: %s", none);
            c.seek(tp, 42);
            next(c, 42);
            c.seekToBeginning(List.of(tp));
            next(c, 0);
            c.seek(tp, 99);
            next(c, 99);
            c.seekToEnd(List.of(tp));
            Driver.check(c.position(tp) == 100, "the end is at %d, expected 100", c.position(tp));
        }
    }

    private void next(KafkaConsumer<byte[], byte[]> c, long want) {
        while (!Thread.interrupted()) {
            last = "nothing is read after seeking to " + want;
            for (ConsumerRecord<byte[], byte[]> r : c.poll(Duration.ofMillis(500))) {
                Driver.check(r.offset() == want, "after seeking to %d the next record is %d", want, r.offset());
                return;
            }
        }
        throw new AssertionError(last);
    }

    private void pauseResume() throws Exception {
        String topic = topic("pause-resume");
        AdminScenarios.create(this, topic, 2, Map.of());
        try (KafkaConsumer<byte[], byte[]> c = reader(topic, 2)) {
            c.pause(List.of(new TopicPartition(topic, 0)));
            List<ProducerRecord<byte[], byte[]>> sent = numbered(topic, 400, 2);
            sendPlain(sent);
            List<ConsumerRecord<byte[], byte[]>> got = collect(c, 200);
            Driver.check(got.stream().allMatch(r -> r.partition() == 1), "records of a paused partition were read");
            Driver.check(c.poll(Duration.ofMillis(500)).isEmpty(), "records of a paused partition were read");
            c.resume(List.of(new TopicPartition(topic, 0)));
            got.addAll(collect(c, 200));
            sameInOrder(sent, got);
        }
    }

    private void topicDeleted() throws Exception {
        String topic = topic("topic-deleted");
        AdminScenarios.create(this, topic, 1, Map.of());
        sendPlain(numbered(topic, 100, 1));
        try (KafkaConsumer<byte[], byte[]> c = reader(topic, 1)) {
            collect(c, 100);
            AdminScenarios.delete(this, topic);
            for (int i = 0; i < 3; i++) {
                try {
                    Driver.check(c.poll(Duration.ofMillis(300)).isEmpty(), "records of a deleted topic were read");
                } catch (org.apache.kafka.common.KafkaException e) {
                    break; // the reader may be told
                }
            }
        }
        AdminScenarios.until(() -> {
            try {
                AdminScenarios.create(this, topic, 1, Map.of());
            } catch (Exception e) { // its deletion is under way, or a client brought it back by asking for it
                AdminScenarios.delete(this, topic);
                throw e;
            }
            return null;
        });
        List<ProducerRecord<byte[], byte[]>> sent = numbered(topic, 10, 1);
        sendPlain(sent);
        sameInOrder(sent, readAll(topic, 1, sent.size()));
    }

    static Map<TopicPartition, OffsetAndMetadata> at(String topic, int partition, long offset) {
        return Map.of(new TopicPartition(topic, partition), new OffsetAndMetadata(offset));
    }
}
