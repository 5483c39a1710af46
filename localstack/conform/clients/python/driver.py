"""What the conformance drivers in Python share: the protocol between a driver
and the runner, and the scenarios, written once against the methods that each
client's class gives. scenarios.md describes both.

A client class has: version, create_topic, delete_topic, topics, partitions,
add_partitions, topic_config, set_topic_config, groups, group, committed,
set_committed, delete_group, offset, delete_records, producer(codec,
idempotent, max_bytes), reader(topic, partitions), member(group, topic).
A producer has send(records) (waits for acks, raises) and close(); a consumer
poll(seconds), seek, pause, resume, commit and close. What a client has no
means for raises NotApplicable.
"""

import argparse
import dataclasses
import json
import re
import sys
import threading
import time
import traceback

SCENARIO_SECONDS = 120  # the runner has a longer limit
EARLIEST, LATEST = -2, -1


class NotApplicable(Exception):
    """The client has no means for a scenario, or nobody answers a question."""


@dataclasses.dataclass
class Record:
    topic: str
    partition: int
    key: bytes | None = None
    value: bytes | None = None
    headers: list = dataclasses.field(default_factory=list)
    timestamp: int = 0  # milliseconds; 0: now
    offset: int = -1


def check(ok, what):
    if not ok:
        raise AssertionError(what)


def until(f, seconds=30):
    """Tries until f returns without an error; the last error counts."""
    end = time.monotonic() + seconds
    while True:
        try:
            return f()
        except NotApplicable:
            raise
        except Exception:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)


def refused(what, f):
    try:
        f()
    except NotApplicable:
        raise
    except Exception:
        return
    raise AssertionError(what + " was accepted")


class Driver:
    def __init__(self, client, prefix):
        self.client, self.prefix, self.notes = client, prefix, []
        self.deadline = 0.0

    def topic(self, name):
        return f"{self.prefix}-{name}"

    def possible(self, step):
        """Runs a step; one that the client has no means for becomes a note."""
        try:
            step()
        except NotApplicable as e:
            self.notes.append(str(e))

    def check_time(self, what):
        check(time.monotonic() < self.deadline, f"not done within {SCENARIO_SECONDS} s: {what}")

    def ask(self, what, topic="", partition=0, group=""):
        say({"ask": what, "topic": topic, "partition": partition, "group": group})
        line = sys.stdin.readline()
        if not line:
            raise NotApplicable("nobody answers: run this scenario through make conform")
        answer = json.loads(line)
        if not answer["ok"]:
            raise NotApplicable(answer.get("reason", ""))

    def send(self, records, codec="none", idempotent=False):
        p = self.client.producer(codec, idempotent, 0)
        try:
            p.send(records)
        finally:
            p.close()

    def collect(self, consumer, n):
        out = []
        while len(out) < n:
            self.check_time(f"{len(out)} of {n} records read")
            out += consumer.poll(0.5)
        out += consumer.poll(0.05)
        check(len(out) == n, f"{len(out)} records read, expected {n}")
        return out

    def read_all(self, topic, partitions, n):
        c = self.client.reader(topic, range(partitions))
        try:
            return self.collect(c, n)
        finally:
            c.close()

    def run(self, name):
        from scenarios import SCENARIOS
        self.notes, start = [], time.monotonic()
        self.deadline = start + SCENARIO_SECONDS
        result, detail = "pass", ""
        try:
            SCENARIOS[name](self)
            detail = "; ".join(self.notes)
        except NotApplicable as e:
            result, detail = "na", str(e)
        except Exception as e:
            traceback.print_exc()
            result, detail = "fail", f"{type(e).__name__}: {e}"
        say({"scenario": name, "result": result, "detail": detail, "seconds": time.monotonic() - start})
        return result != "fail"


def say(line):
    print(json.dumps(line), flush=True)


def main(connect):
    p = argparse.ArgumentParser()
    p.add_argument("--bootstrap", required=True)
    p.add_argument("--scenario", required=True)
    p.add_argument("--topic-prefix", required=True)
    args = p.parse_args()
    client = connect(args.bootstrap)
    say({"version": client.version})
    d = Driver(client, args.topic_prefix)
    results = [d.run(name) for name in args.scenario.split(",")]
    sys.exit(0 if all(results) else 1)


def numbered(topic, n, partitions):
    return [Record(topic, i % partitions, b"key-%d" % i, b"%d:%d:%s" % (i % partitions, i // partitions, b"thermocline " * 8))
            for i in range(n)]


def brief(b):
    return repr(b) if b is None or len(b) <= 40 else f"{b[:40]!r}… ({len(b)} bytes)"


def same_in_order(sent, got):
    want, following = {}, {}
    for r in sent:
        want.setdefault(r.partition, []).append(r)
    for r in got:
        i = following.get(r.partition, 0)
        following[r.partition] = i + 1
        where = f"partition {r.partition}, offset {r.offset}"
        check(r.offset == i, f"{where} where {i} was expected")
        w = want[r.partition][i]
        check(w.key == r.key, f"{where}: key {brief(r.key)}, sent {brief(w.key)}")
        check(w.value == r.value, f"{where}: value {brief(r.value)}, sent {brief(w.value)}")
        check(w.headers == r.headers, f"{where}: headers {r.headers}, sent {w.headers}")
    check(len(got) == len(sent), f"{len(got)} records read, {len(sent)} sent")


class Load:
    """Sends numbered records to every partition until it is stopped."""

    def __init__(self, driver, topic, partitions):
        self.driver, self.topic, self.partitions = driver, topic, partitions
        self.acked, self.unknown, self.problem = set(), set(), None
        self.idempotent = True
        try:
            self.producer = driver.client.producer("none", True, 0)
        except NotApplicable:
            self.idempotent = False
            self.producer = driver.client.producer("none", False, 0)
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self.work, daemon=True)
        self.thread.start()

    def work(self):
        i = 0
        while not self.stopped.wait(0.02):
            values = [b"%d:%d" % (p, i) for p in range(self.partitions)]
            i += 1
            try:
                self.producer.send([Record(self.topic, p, None, v) for p, v in enumerate(values)])
                self.acked.update(values)
            except Exception as e:
                self.problem = e
                self.unknown.update(values)
        self.producer.close()

    def more(self, n):
        start = len(self.acked)
        wait_for(lambda: len(self.acked) - start >= n,
                 lambda: f"{len(self.acked) - start} records acknowledged, {n} expected (last error: {self.problem!r})")

    def finish(self):
        self.stopped.set()
        self.thread.join()

    def covers(self, *readers):
        def missing():
            return self.acked - {r.value for reading in readers for r in list(reading.got)}
        wait_for(lambda: not missing(),
                 lambda: f"{len(missing())} of {len(self.acked)} acknowledged records were not read, such as {sorted(missing())[:1]}")

    def once(self, reading):
        """No gaps, nothing invented; from an idempotent producer nothing twice, all in order."""
        following, seen = {}, {}
        for r in reading.got:
            where = f"partition {r.partition}, offset {r.offset}"
            check(r.offset == following.get(r.partition, 0), f"{where} where {following.get(r.partition, 0)} was expected")
            following[r.partition] = r.offset + 1
            check(r.value in self.acked or r.value in self.unknown, f"{where}: {r.value} was never sent")
            m = re.fullmatch(rb"(\d+):(\d+)", r.value)
            check(m and int(m[1]) == r.partition, f"{where}: {r.value} does not belong there")
            if self.idempotent:
                check(int(m[2]) > seen.get(r.partition, -1), f"{where}: {r.value} after {seen.get(r.partition)}")
            seen[r.partition] = int(m[2])


def wait_for(condition, otherwise, seconds=90):
    end = time.monotonic() + seconds
    while not condition():
        check(time.monotonic() < end, otherwise())
        time.sleep(0.02)


class Reading:
    """Polls a consumer in a thread of its own and keeps what it got."""

    def __init__(self, consumer, commit):
        self.consumer, self.commit = consumer, commit
        self.got, self.problem = [], None
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self.work, daemon=True)
        self.thread.start()

    def work(self):
        while not self.stopped.is_set():
            try:
                got = self.consumer.poll(0.2)
                self.got += got
                if self.commit and got:
                    self.consumer.commit()  # may meet a rebalance; the next one counts
            except Exception as e:
                self.problem = e
        self.consumer.close()

    def more(self, n):
        start = len(self.got)
        wait_for(lambda: len(self.got) - start >= n,
                 lambda: f"{len(self.got) - start} records read, {n} expected (last error: {self.problem!r})")

    def finish(self):
        self.stopped.set()
        self.thread.join()

    def all_of(self, partitions):
        """Waits until records of every partition are read from now on."""
        start = len(self.got)
        read = lambda: len({r.partition for r in self.got[start:]})
        wait_for(lambda: read() == partitions,
                 lambda: f"records of {read()} partitions are read, expected {partitions} (last error: {self.problem!r})")
