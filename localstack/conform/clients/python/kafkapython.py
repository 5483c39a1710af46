"""The conformance driver of kafka-python."""

import kafka
import kafka.admin as ka
import kafka.errors
from kafka.structs import OffsetAndMetadata, TopicPartition

import driver
from driver import EARLIEST, Record


def no_error(error):
    """Raises what admin calls give as results: error classes, and names of errors."""
    if isinstance(error, str):
        if error not in ("OK", "NoError"):
            raise kafka.errors.KafkaError(error)
    elif error is not None and getattr(error, "errno", 0) != 0:
        raise error if isinstance(error, Exception) else error()


class Client:
    null_headers = False  # "All headers items must be (str, bytes) tuples"

    def __init__(self, bootstrap):
        self.common = {"bootstrap_servers": bootstrap.split(","), "retry_backoff_ms": 50}
        self.admin = ka.KafkaAdminClient(**self.common)
        self.version = f"kafka-python {kafka.__version__}"

    def create_topic(self, topic, partitions, config=None):
        self.admin.create_topics([ka.NewTopic(topic, num_partitions=partitions, topic_configs=config or {})], timeout_ms=10000)

    def delete_topic(self, topic):
        self.admin.delete_topics([topic], timeout_ms=10000)

    def topics(self):
        return self.admin.list_topics()

    def partitions(self, topic):
        (t,) = self.admin.describe_topics([topic])
        no_error(kafka.errors.for_code(t["error_code"]))
        return len(t["partitions"])

    def add_partitions(self, topic, total):
        self.admin.create_partitions({topic: total}, timeout_ms=10000)

    def topic_config(self, topic):
        all_of = self.admin.describe_configs([ka.ConfigResource(ka.ConfigResourceType.TOPIC, topic)], config_filter="all")
        (by_name,) = all_of.values()
        return {k: v["value"] if isinstance(v, dict) else v for k, v in by_name[topic].items()}

    def set_topic_config(self, topic, key, value):
        result = self.admin.alter_configs([ka.ConfigResource(ka.ConfigResourceType.TOPIC, topic, configs={key: value})])
        no_error(result["topic"][topic])

    def groups(self):
        return [g["group_id"] for g in self.admin.list_groups()]

    def group(self, group):
        d = self.admin.describe_groups([group])[group]
        return d["group_state"], len(d["members"])

    def committed(self, group, topic, partition):
        tp = TopicPartition(topic, partition)
        found = self.admin.list_group_offsets({group: [tp]})[group].get(tp)
        return -1 if found is None else found.offset

    def set_committed(self, group, topic, partition, offset):
        for error in self.admin.alter_group_offsets(group, {TopicPartition(topic, partition): OffsetAndMetadata(offset, "", -1)}).values():
            no_error(error)

    def delete_group(self, group):
        no_error(self.admin.delete_groups([group])[group])

    def offset(self, topic, partition, at):
        tp = TopicPartition(topic, partition)
        found = self.admin.list_partition_offsets({tp: at})[tp]
        return -1 if found is None else found.offset

    def delete_records(self, topic, partition, before):
        self.admin.delete_records({TopicPartition(topic, partition): before}, timeout_ms=10000)

    def producer(self, codec, idempotent, max_bytes):
        more = {"max_request_size": max_bytes} if max_bytes else {}
        return Producer(kafka.KafkaProducer(
            **self.common, **more, acks="all", compression_type=None if codec == "none" else codec, enable_idempotence=idempotent,
            linger_ms=5, delivery_timeout_ms=40000, request_timeout_ms=10000))

    def consumer(self, group, **more):
        return kafka.KafkaConsumer(**self.common, **more, group_id=group, enable_auto_commit=False, auto_offset_reset="earliest",
                                   heartbeat_interval_ms=300, session_timeout_ms=10000, allow_auto_create_topics=False)

    def reader(self, topic, partitions):
        c = self.consumer(None)
        c.assign([TopicPartition(topic, p) for p in partitions])
        return Consumer(c)

    def member(self, group, topic):
        c = self.consumer(group)
        c.subscribe([topic])
        return Consumer(c)


class Producer:
    def __init__(self, p):
        self.p = p

    def send(self, records):
        futures = [self.p.send(r.topic, value=r.value, key=r.key, partition=r.partition, headers=r.headers or None, timestamp_ms=r.timestamp or None)
                   for r in records]
        self.p.flush(timeout=45)
        for f in futures:
            f.get(timeout=45)

    def close(self):
        self.p.close(timeout=10)


class Consumer:
    def __init__(self, c):
        self.c = c

    def poll(self, seconds):
        got = self.c.poll(timeout_ms=int(seconds * 1000))
        return [Record(m.topic, m.partition, m.key, m.value, list(m.headers), m.timestamp, m.offset) for ms in got.values() for m in ms]

    def seek(self, topic, partition, to):
        tp = TopicPartition(topic, partition)
        if to == EARLIEST:
            self.c.seek_to_beginning(tp)
        else:
            self.c.seek(tp, to)

    def pause(self, topic, partition):
        self.c.pause(TopicPartition(topic, partition))

    def resume(self, topic, partition):
        self.c.resume(TopicPartition(topic, partition))

    def commit(self):
        self.c.commit()

    def close(self):
        self.c.close(autocommit=False)


if __name__ == "__main__":
    driver.main(Client)
