import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Callable;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/** The scenarios of groups, and those in which brokers go, under load. */
final class LoadScenarios {
    private final Scenarios s;

    LoadScenarios(Scenarios s) {
        this.s = s;
        s.all.put("group-commit", this::groupCommit);
        s.all.put("group-rebalance", this::groupRebalance);
        s.all.put("group-848", this::group848);
        s.all.put("leader-moved", () -> fault("move-leader", "leader-moved"));
        s.all.put("broker-killed", () -> fault("kill-leader", "broker-killed"));
        s.all.put("coordinator-killed", this::coordinatorKilled);
    }

    /** Load sends numbered records to every partition until it is stopped. */
    private final class Load extends Thread {
        final String topic;
        final int partitions;
        final Set<String> acked = new HashSet<>(), unknown = new HashSet<>();
        volatile boolean stopped;
        volatile Exception problem;

        Load(String topic, int partitions) {
            super("load");
            this.topic = topic;
            this.partitions = partitions;
            setDaemon(true);
            start();
        }

        @Override public void run() {
            try (KafkaProducer<byte[], byte[]> p = s.producer("none", Map.of("linger.ms", "0"))) {
                for (int i = 0; !stopped; i++) {
                    batch(p, i);
                    Thread.sleep(20);
                }
            } catch (InterruptedException e) {
                problem = e;
            }
        }

        private void batch(KafkaProducer<byte[], byte[]> p, int i) {
            List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>();
            Set<String> values = new HashSet<>();
            for (int part = 0; part < partitions; part++) {
                records.add(new ProducerRecord<>(topic, part, null, Scenarios.bytes(part + ":" + i)));
                values.add(part + ":" + i);
            }
            Set<String> outcome = acked;
            try {
                Scenarios.send(p, records);
            } catch (Exception e) {
                problem = e;
                outcome = unknown;
            }
            synchronized (acked) {
                outcome.addAll(values);
            }
        }

        int count() {
            synchronized (acked) {
                return acked.size();
            }
        }

        void more(int n) throws Exception {
            int from = count();
            await(() -> count() - from >= n, () -> count() - from + " records acknowledged, " + n + " expected (last error: " + problem + ")");
        }

        void finish() throws InterruptedException {
            stopped = true;
            join();
        }

        /** covers waits until every acknowledged record was read by one of the readers. */
        void covers(List<Reading> readers) throws Exception {
            await(() -> missing(readers).isEmpty(), () -> missing(readers).size() + " of " + acked.size() + " acknowledged records were not read, such as "
                + missing(readers).stream().findFirst().orElse(""));
        }

        private Set<String> missing(List<Reading> readers) {
            Set<String> out = new HashSet<>(acked);
            for (Reading r : readers) {
                synchronized (r.got) {
                    r.got.forEach(x -> out.remove(Scenarios.text(x.value())));
                }
            }
            return out;
        }

        /** once checks one reader: no gaps, nothing invented, nothing twice, all in order. */
        void once(Reading r) {
            Map<Integer, Long> next = new HashMap<>();
            Map<Integer, Integer> seen = new HashMap<>();
            for (ConsumerRecord<byte[], byte[]> x : r.got) {
                String v = Scenarios.text(x.value()), where = "partition " + x.partition() + ", offset " + x.offset();
                Driver.check(x.offset() == next.getOrDefault(x.partition(), 0L), "%s where %d was expected", where, next.getOrDefault(x.partition(), 0L));
                next.put(x.partition(), x.offset() + 1);
                Driver.check(acked.contains(v) || unknown.contains(v), "%s: %s was never sent", where, v);
                int seq = Integer.parseInt(v.substring(v.indexOf(':') + 1));
                Driver.check(v.startsWith(x.partition() + ":") && seq > seen.getOrDefault(x.partition(), -1), "%s: record %s after %d", where, v, seen.get(x.partition()));
                seen.put(x.partition(), seq);
            }
        }
    }

    /** Reading polls a consumer of its own thread and keeps what it got. */
    private static final class Reading extends Thread {
        private final KafkaConsumer<byte[], byte[]> consumer;
        private final boolean commit;
        final List<ConsumerRecord<byte[], byte[]>> got = new ArrayList<>();
        volatile boolean stopped;
        volatile Exception problem;

        Reading(KafkaConsumer<byte[], byte[]> consumer, boolean commit) {
            super("reading");
            this.consumer = consumer;
            this.commit = commit;
            setDaemon(true);
            start();
        }

        @Override public void run() {
            while (!stopped) {
                try {
                    int before = count();
                    for (ConsumerRecord<byte[], byte[]> r : consumer.poll(Duration.ofMillis(200))) {
                        synchronized (got) {
                            got.add(r);
                        }
                    }
                    // A commit meets rebalances and dead brokers; the next one counts.
                    if (commit && count() > before) consumer.commitSync(Duration.ofSeconds(5));
                } catch (Exception e) {
                    problem = e;
                }
            }
            consumer.close();
        }

        int count() {
            synchronized (got) {
                return got.size();
            }
        }

        void more(int n) throws Exception {
            int from = count();
            await(() -> count() - from >= n, () -> count() - from + " records read, " + n + " expected (last error: " + problem + ")");
        }

        /** allOf waits until records of every partition are read from now on. */
        void allOf(int partitions) throws Exception {
            int from = count();
            await(() -> partitionsSince(from) == partitions, () -> "records of " + partitionsSince(from) + " partitions are read, expected "
                + partitions + " (last error: " + problem + ")");
        }

        private long partitionsSince(int from) {
            synchronized (got) {
                return got.stream().skip(from).map(ConsumerRecord::partition).distinct().count();
            }
        }

        void finish() throws InterruptedException {
            stopped = true;
            join();
        }
    }

    /** await waits for a condition, 90 seconds at most. */
    private static void await(Callable<Boolean> condition, Callable<String> otherwise) throws Exception {
        long end = System.nanoTime() + 90_000_000_000L;
        while (!condition.call()) {
            if (System.nanoTime() > end) throw new AssertionError(otherwise.call());
            Thread.sleep(20);
        }
    }

    private Reading member(String group, String topic, Map<String, String> more) {
        KafkaConsumer<byte[], byte[]> c = s.consumer(group, more);
        c.subscribe(List.of(topic));
        return new Reading(c, true);
    }

    private void groupCommit() throws Exception {
        String topic = s.topic("group-commit"), group = topic + "-group";
        AdminScenarios.create(s, topic, 2, Map.of());
        List<ProducerRecord<byte[], byte[]>> sent = Scenarios.numbered(topic, 400, 2);
        s.sendPlain(sent.subList(0, 200));
        List<ConsumerRecord<byte[], byte[]>> got = readAndCommit(group, topic, 200);
        TopicPartition first = new TopicPartition(topic, 0), second = new TopicPartition(topic, 1);
        try (KafkaConsumer<byte[], byte[]> c = s.consumer(group, Map.of())) {
            var committed = c.committed(Set.of(first, second));
            Driver.check(committed.get(first).offset() == 100 && committed.get(second).offset() == 100, "committed are %s, expected 100 each", committed);
        }
        s.sendPlain(sent.subList(200, 400));
        got.addAll(readAndCommit(group, topic, 200));
        Scenarios.sameInOrder(sent, got);
    }

    private List<ConsumerRecord<byte[], byte[]>> readAndCommit(String group, String topic, int n) {
        try (KafkaConsumer<byte[], byte[]> c = s.consumer(group, Map.of())) {
            c.subscribe(List.of(topic));
            List<ConsumerRecord<byte[], byte[]>> got = s.collect(c, n);
            c.commitSync();
            return got;
        }
    }

    private void groupRebalance() throws Exception {
        String topic = s.topic("group-rebalance"), group = topic + "-group";
        AdminScenarios.create(s, topic, 4, Map.of());
        Load load = new Load(topic, 4);
        List<Reading> members = new ArrayList<>();
        try {
            for (int i = 0; i < 3; i++) {
                s.last = "member " + (i + 1) + " joins";
                members.add(member(group, topic, Map.of()));
                members.get(i).more(30);
            }
            members.get(0).finish();
            s.last = "the first member has left";
            members.get(1).more(30);
            members.get(2).more(30);
            load.finish();
            load.covers(members);
        } finally {
            load.stopped = true;
            for (Reading r : members) r.finish();
        }
    }

    /** Two members of KIP-848: the brokers' heartbeat interval makes each change take seconds. */
    private void group848() throws Exception {
        String topic = s.topic("group-848"), group = topic + "-group";
        AdminScenarios.create(s, topic, 4, Map.of());
        Load load = new Load(topic, 4);
        List<Reading> members = new ArrayList<>();
        try {
            for (int i = 0; i < 2; i++) {
                s.last = "member " + (i + 1) + " joins";
                members.add(member(group, topic, Map.of("group.protocol", "consumer")));
                members.get(i).more(30);
            }
            members.get(0).finish();
            s.last = "the first member has left";
            members.get(1).allOf(4);
            load.finish();
            load.covers(members);
        } finally {
            load.stopped = true;
            for (Reading r : members) r.finish();
        }
    }

    private void fault(String what, String name) throws Exception {
        String topic = s.topic(name);
        AdminScenarios.create(s, topic, 3, Map.of());
        Reading r = new Reading(s.reader(topic, 3), false);
        Load load = new Load(topic, 3);
        try {
            through(what, topic, "", load, r);
            load.finish();
            load.covers(List.of(r));
        } finally {
            load.stopped = true;
            r.finish();
        }
        load.once(r);
    }

    private void through(String what, String topic, String group, Load load, Reading r) throws Exception {
        step("before", load, r);
        Driver.ask(what, topic, 0, group);
        step("while a broker is away", load, r);
        Driver.ask("restore", topic, 0, group);
        step("after it is back", load, r);
    }

    private void step(String when, Load load, Reading r) throws Exception {
        s.last = when;
        try {
            load.more(30);
            r.more(30);
        } catch (AssertionError e) {
            throw new AssertionError(when + ": " + e.getMessage());
        }
    }

    private void coordinatorKilled() throws Exception {
        String topic = s.topic("coordinator-killed"), group = topic + "-group";
        AdminScenarios.create(s, topic, 3, Map.of());
        Reading r = member(group, topic, Map.of());
        Load load = new Load(topic, 3);
        try {
            through("kill-coordinator", topic, group, load, r);
            load.finish();
            load.covers(List.of(r));
        } finally {
            load.stopped = true;
            r.finish();
        }
    }
}
