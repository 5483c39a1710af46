import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.DescribeClusterResult;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;

/** The scenarios of the admin client. */
final class AdminScenarios {
    private final Scenarios s;

    AdminScenarios(Scenarios s) {
        this.s = s;
        s.all.put("admin-topics", this::topics);
        s.all.put("admin-configs", this::configs);
        s.all.put("admin-groups", this::groups);
        s.all.put("admin-offsets", this::offsets);
    }

    static Admin admin(Scenarios s) { return Admin.create(s.common()); }

    static <T> T get(KafkaFuture<T> f) throws Exception {
        try {
            return f.get();
        } catch (ExecutionException e) {
            throw (Exception) e.getCause();
        }
    }

    static void create(Scenarios s, String topic, int partitions, Map<String, String> config) throws Exception {
        try (Admin a = admin(s)) {
            NewTopic t = new NewTopic(topic, Optional.of(partitions), Optional.empty());
            get(a.createTopics(List.of(t.configs(config))).all());
        }
    }

    static void delete(Scenarios s, String topic) throws Exception {
        try (Admin a = admin(s)) {
            get(a.deleteTopics(List.of(topic)).all());
        }
    }

    /** until tries until f succeeds, 30 seconds at most. */
    static void until(Callable<Void> f) throws Exception {
        long end = System.nanoTime() + 30_000_000_000L;
        while (true) {
            try {
                f.call();
                return;
            } catch (Exception | AssertionError e) {
                if (System.nanoTime() > end) throw e;
                Thread.sleep(100);
            }
        }
    }

    private void topics() throws Exception {
        String topic = s.topic("admin-topics");
        create(s, topic, 3, Map.of("retention.ms", "7200000"));
        try (Admin a = admin(s)) {
            DescribeClusterResult cluster = a.describeCluster();
            Driver.check(!get(cluster.nodes()).isEmpty() && get(cluster.controller()) != null && !get(cluster.clusterId()).isEmpty(), "the cluster is not described");
            until(() -> partitionsAre(a, topic, 3));
            Scenarios.refused("a topic that exists", () -> { create(s, topic, 3, Map.of()); return null; });
            Scenarios.refused("a topic with an invalid name", () -> { create(s, topic + "/bad name", 1, Map.of()); return null; });
            until(() -> listed(a, topic, true));
            get(a.createPartitions(Map.of(topic, NewPartitions.increaseTo(5))).all());
            until(() -> partitionsAre(a, topic, 5));
            Scenarios.refused("fewer partitions", () -> get(a.createPartitions(Map.of(topic, NewPartitions.increaseTo(2))).all()));
            get(a.deleteTopics(List.of(topic)).all());
            until(() -> listed(a, topic, false));
            Scenarios.refused("the deletion of a topic that does not exist", () -> get(a.deleteTopics(List.of(topic)).all()));
        }
    }

    private static Void partitionsAre(Admin a, String topic, int want) throws Exception {
        TopicDescription d = get(a.describeTopics(List.of(topic)).allTopicNames()).get(topic);
        Driver.check(d.partitions().size() == want, "%d partitions are described, expected %d", d.partitions().size(), want);
        Driver.check(d.topicId() != null && !d.topicId().equals(org.apache.kafka.common.Uuid.ZERO_UUID), "the topic has no id");
        d.partitions().forEach(p -> Driver.check(p.leader() != null && !p.isr().isEmpty(), "partition %d has no leader or replicas", p.partition()));
        return null;
    }

    private static Void listed(Admin a, String topic, boolean want) throws Exception {
        Driver.check(get(a.listTopics().names()).contains(topic) == want, "topic listed: %b, expected %b", !want, want);
        return null;
    }

    private void configs() throws Exception {
        String topic = s.topic("admin-configs");
        create(s, topic, 1, Map.of("retention.ms", "7200000"));
        ConfigResource of = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        try (Admin a = admin(s)) {
            until(() -> configIs(a, of, "retention.ms", "7200000"));
            until(() -> configIs(a, of, "cleanup.policy", "delete"));
            get(set(a, of, "retention.ms", "3600000"));
            until(() -> configIs(a, of, "retention.ms", "3600000"));
            Scenarios.refused("retention.ms set to a word", () -> get(set(a, of, "retention.ms", "soon")));
            Scenarios.refused("an unknown config", () -> { create(s, topic + "-bad", 1, Map.of("no.such.config", "1")); return null; });
            get(a.incrementalAlterConfigs(Map.of(of, List.of(new AlterConfigOp(new ConfigEntry("retention.ms", ""), AlterConfigOp.OpType.DELETE)))).all());
            until(() -> configIs(a, of, "retention.ms", "604800000"));
            int node = get(a.describeCluster().nodes()).iterator().next().id();
            ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, String.valueOf(node));
            Driver.check(!get(a.describeConfigs(List.of(broker)).all()).get(broker).entries().isEmpty(), "broker %d has no configs", node);
        }
    }

    private static KafkaFuture<Void> set(Admin a, ConfigResource of, String key, String value) {
        return a.incrementalAlterConfigs(Map.of(of, List.of(new AlterConfigOp(new ConfigEntry(key, value), AlterConfigOp.OpType.SET)))).all();
    }

    private static Void configIs(Admin a, ConfigResource of, String key, String want) throws Exception {
        String have = get(a.describeConfigs(List.of(of)).all()).get(of).get(key).value();
        Driver.check(want.equals(have), "%s is %s, expected %s", key, have, want);
        return null;
    }

    private void groups() throws Exception {
        String topic = s.topic("admin-groups"), group = topic + "-group";
        create(s, topic, 1, Map.of());
        List<ProducerRecord<byte[], byte[]>> sent = Scenarios.numbered(topic, 50, 1);
        s.sendPlain(sent);
        TopicPartition tp = new TopicPartition(topic, 0);
        try (Admin a = admin(s)) {
            try (KafkaConsumer<byte[], byte[]> c = s.consumer(group, Map.of())) {
                c.subscribe(List.of(topic));
                s.collect(c, 50);
                c.commitSync();
                groupIs(a, group, "Stable", 1);
                Scenarios.refused("the deletion of a group with a member", () -> get(a.deleteConsumerGroups(List.of(group)).all()));
            }
            groupIs(a, group, "Empty", 0);
            get(a.alterConsumerGroupOffsets(group, Scenarios.at(topic, 0, 20)).all());
            Map<TopicPartition, OffsetAndMetadata> committed = get(a.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata());
            Driver.check(committed.get(tp) != null && committed.get(tp).offset() == 20, "committed are %s, 20 was set", committed);
            get(a.deleteConsumerGroupOffsets(group, java.util.Set.of(tp)).all());
            committed = get(a.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata());
            Driver.check(committed.get(tp) == null, "committed are %s after their deletion", committed);
            get(a.deleteConsumerGroups(List.of(group)).all());
            Driver.check(get(a.listConsumerGroups().all()).stream().noneMatch(g -> g.groupId().equals(group)), "a deleted group is listed");
        }
    }

    private static void groupIs(Admin a, String group, String state, int members) throws Exception {
        Driver.check(get(a.listConsumerGroups().all()).stream().anyMatch(g -> g.groupId().equals(group)), "group %s is not listed", group);
        until(() -> {
            ConsumerGroupDescription d = get(a.describeConsumerGroups(List.of(group)).all()).get(group);
            String have = d.state().toString();
            Driver.check(have.equals(state) && d.members().size() == members, "the group is %s with %d members, expected %s with %d", have, d.members().size(), state, members);
            return null;
        });
    }

    private void offsets() throws Exception {
        String topic = s.topic("admin-offsets");
        create(s, topic, 1, Map.of());
        try (Admin a = admin(s)) {
            offsetsAre(a, topic, 0, 0);
            s.sendPlain(Scenarios.numbered(topic, 50, 1));
            offsetsAre(a, topic, 0, 50);
            TopicPartition tp = new TopicPartition(topic, 0);
            long max = get(a.listOffsets(Map.of(tp, OffsetSpec.maxTimestamp())).partitionResult(tp)).offset();
            Driver.check(max >= 0 && max < 50, "offset of the maximum timestamp: %d", max);
            long low = get(a.deleteRecords(Map.of(tp, RecordsToDelete.beforeOffset(10))).lowWatermarks().get(tp)).lowWatermark();
            Driver.check(low == 10, "low watermark %d after deleting before 10", low);
            offsetsAre(a, topic, 10, 50);
            List<ConsumerRecord<byte[], byte[]>> got = s.readAll(topic, 1, 40);
            Driver.check(got.get(0).offset() == 10, "the first record read is %d, expected 10", got.get(0).offset());
        }
    }

    private static void offsetsAre(Admin a, String topic, long first, long next) throws Exception {
        TopicPartition tp = new TopicPartition(topic, 0);
        long have = get(a.listOffsets(Map.of(tp, OffsetSpec.earliest())).partitionResult(tp)).offset();
        Driver.check(have == first, "earliest offset %d, expected %d", have, first);
        have = get(a.listOffsets(Map.of(tp, OffsetSpec.latest())).partitionResult(tp)).offset();
        Driver.check(have == next, "latest offset %d, expected %d", have, next);
    }
}
