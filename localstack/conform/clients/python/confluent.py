"""The conformance driver of confluent-kafka-python, and through it of a
current librdkafka."""

import confluent_kafka as ck
from confluent_kafka import admin as ca

import driver
from driver import EARLIEST, LATEST, Record


def plain(futures):
    """The one result of an admin call."""
    (future,) = futures.values()
    return future.result(timeout=20)


class Client:
    def __init__(self, bootstrap):
        self.common = {"bootstrap.servers": bootstrap, "log_level": 3, "retry.backoff.ms": 50,
                       "topic.metadata.refresh.interval.ms": 5000}
        self.admin = ca.AdminClient(self.common)
        self.version = f"confluent-kafka {ck.__version__}, librdkafka {ck.libversion()[0]}"

    def create_topic(self, topic, partitions, config=None):
        plain(self.admin.create_topics([ca.NewTopic(topic, num_partitions=partitions, config=config or {})]))

    def delete_topic(self, topic):
        plain(self.admin.delete_topics([topic]))

    def topics(self):
        return list(self.admin.list_topics(timeout=10).topics)

    def partitions(self, topic):
        d = plain(self.admin.describe_topics(ck.TopicCollection([topic])))
        return len(d.partitions)

    def add_partitions(self, topic, total):
        plain(self.admin.create_partitions([ca.NewPartitions(topic, total)]))

    def topic_config(self, topic):
        entries = plain(self.admin.describe_configs([ca.ConfigResource(ca.ConfigResource.Type.TOPIC, topic)]))
        return {k: e.value for k, e in entries.items()}

    def set_topic_config(self, topic, key, value):
        entry = ca.ConfigEntry(key, value, incremental_operation=ca.AlterConfigOpType.SET)
        plain(self.admin.incremental_alter_configs([ca.ConfigResource(ca.ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])]))

    def groups(self):
        return [g.group_id for g in self.admin.list_consumer_groups().result(timeout=20).valid]

    def group(self, group):
        d = plain(self.admin.describe_consumer_groups([group]))
        return d.state.name.capitalize(), len(d.members)

    def committed(self, group, topic, partition):
        ask = ck.ConsumerGroupTopicPartitions(group, [ck.TopicPartition(topic, partition)])
        (tp,) = plain(self.admin.list_consumer_group_offsets([ask])).topic_partitions
        return max(tp.offset, -1)

    def set_committed(self, group, topic, partition, offset):
        plain(self.admin.alter_consumer_group_offsets([ck.ConsumerGroupTopicPartitions(group, [ck.TopicPartition(topic, partition, offset)])]))

    def delete_group(self, group):
        plain(self.admin.delete_consumer_groups([group]))

    def offset(self, topic, partition, at):
        spec = {EARLIEST: ca.OffsetSpec.earliest, LATEST: ca.OffsetSpec.latest}.get(at, lambda: ca.OffsetSpec.for_timestamp(at))()
        return plain(self.admin.list_offsets({ck.TopicPartition(topic, partition): spec})).offset

    def delete_records(self, topic, partition, before):
        plain(self.admin.delete_records([ck.TopicPartition(topic, partition, before)]))

    def producer(self, codec, idempotent, max_bytes):
        more = {"acks": "all", "compression.type": codec, "enable.idempotence": idempotent, "linger.ms": 5, "delivery.timeout.ms": 40000,
                "request.timeout.ms": 10000}
        if max_bytes:
            more["message.max.bytes"] = max_bytes
        return Producer(ck.Producer({**self.common, **more}))

    def consumer(self, group, **more):
        more = more or {"heartbeat.interval.ms": 300, "session.timeout.ms": 10000}
        return ck.Consumer({**self.common, "group.id": group, "enable.auto.commit": False, "auto.offset.reset": "earliest", **more})

    def reader(self, topic, partitions):
        c = self.consumer("no-group-" + topic)
        c.assign([ck.TopicPartition(topic, p, ck.OFFSET_BEGINNING) for p in partitions])
        return Consumer(c)

    def member(self, group, topic):
        c = self.consumer(group)
        c.subscribe([topic])
        return Consumer(c)

    def member_848(self, group, topic):
        c = self.consumer(group, **{"group.protocol": "consumer"})
        c.subscribe([topic])
        return Consumer(c)


class Producer:
    def __init__(self, p):
        self.p = p

    def send(self, records):
        errors, waiting = [], len(records)

        def done(err, _):
            nonlocal waiting
            waiting -= 1
            if err:
                errors.append(err)

        for r in records:
            while True:
                try:
                    self.p.produce(r.topic, value=r.value, key=r.key, partition=r.partition, on_delivery=done,
                                   timestamp=r.timestamp, headers=r.headers or None)
                    break
                except BufferError:
                    self.p.poll(0.1)
        while waiting:
            self.p.poll(0.5)
        if errors:
            raise ck.KafkaException(errors[0])

    def close(self):
        self.p.flush(10)


class Consumer:
    def __init__(self, c):
        self.c = c

    def poll(self, seconds):
        out = []
        for m in self.c.consume(500, seconds) if seconds < 0.1 else self._some(seconds):
            if m.error():
                raise ck.KafkaException(m.error())
            out.append(Record(m.topic(), m.partition(), m.key(), m.value(), list(m.headers() or []), m.timestamp()[1], m.offset()))
        return out

    def _some(self, seconds):
        """Waits for a first record only: consume waits for all that it is asked for."""
        m = self.c.poll(seconds)
        return [] if m is None else [m] + self.c.consume(500, 0)

    def seek(self, topic, partition, to):
        self.c.seek(ck.TopicPartition(topic, partition, ck.OFFSET_BEGINNING if to == EARLIEST else to))

    def pause(self, topic, partition):
        self.c.pause([ck.TopicPartition(topic, partition)])

    def resume(self, topic, partition):
        self.c.resume([ck.TopicPartition(topic, partition)])

    def commit(self):
        self.c.commit(asynchronous=False)

    def close(self):
        self.c.close()


if __name__ == "__main__":
    driver.main(Client)
