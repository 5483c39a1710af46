"""The scenarios; scenarios.md, two folders up, says what each must show."""

import time

from driver import (EARLIEST, LATEST, Load, NotApplicable, Reading, Record, check, numbered, refused, same_in_order, until)


def codec(name):
    def scenario(d):
        topic = d.topic("codec-" + name)
        d.client.create_topic(topic, 3)
        sent = numbered(topic, 1500, 3)
        d.send(sent, codec=name)
        same_in_order(sent, d.read_all(topic, 3, len(sent)))
    return scenario


def idempotent(d):
    topic = d.topic("idempotent")
    d.client.create_topic(topic, 3)
    sent = numbered(topic, 6000, 3)
    d.send(sent, idempotent=True)
    same_in_order(sent, d.read_all(topic, 3, len(sent)))


def filler(n):
    out, x = bytearray(n), 1
    for i in range(n):
        x = (x * 1664525 + 1013904223) & 0xFFFFFFFF
        out[i] = 97 + (x >> 24) % 26
    return bytes(out)


def shapes(d):
    topic = d.topic("shapes")
    d.client.create_topic(topic, 1)
    headers = [("h", b"a"), ("h", b"b"), ("empty", b"")]
    if getattr(d.client, "null_headers", True):
        headers.append(("null", None))
    else:
        d.notes.append("the client has no null header values")
    sent = [
        Record(topic, 0, None, b"no key"),
        Record(topic, 0, b"tombstone", None),
        Record(topic, 0, b"", b""),
        Record(topic, 0, None, b"x"),
        Record(topic, 0, b"with headers", b"v", headers),
        Record(topic, 0, "ключ".encode() * 100, b"long key"),
        Record(topic, 0, None, filler(1_048_000)),
    ]
    p = d.client.producer("none", False, 2 << 20)
    try:
        for r in sent:
            p.send([r])
        refused("a record of 1100000 bytes", lambda: p.send([Record(topic, 0, None, filler(1_100_000))]))
        sent.append(Record(topic, 0, None, b"after the refused one"))
        p.send(sent[-1:])
    finally:
        p.close()
    same_in_order(sent, d.read_all(topic, 1, len(sent)))


def seek_times(d):
    topic = d.topic("seek-times")
    d.client.create_topic(topic, 1)
    base = int(time.time() * 1000) - 3_600_000
    d.send([Record(topic, 0, None, b"0:%d" % i, timestamp=base + i * 1000) for i in range(100)])
    c = d.client.reader(topic, [0])
    try:
        got = d.collect(c, 100)
        check(all(r.timestamp == base + r.offset * 1000 for r in got), "other timestamps than were sent")
        for i in (0, 10, 99):
            have = d.client.offset(topic, 0, base + i * 1000 - 1)
            check(have == i, f"offset for the time of record {i}: {have}")
        have = d.client.offset(topic, 0, base + 3_600_000)
        check(have in (-1, 100), f"offset for a time after the last record: {have}")  # librdkafka gives the end
        for to in (42, EARLIEST, 99):
            c.seek(topic, 0, to)
            got = []
            while not got:
                d.check_time(f"nothing is read after seeking to {to}")
                got = c.poll(0.5)
            check(got[0].offset == max(to, 0), f"after seeking to {to} the next record is {got[0].offset}")
    finally:
        c.close()


def pause_resume(d):
    topic = d.topic("pause-resume")
    d.client.create_topic(topic, 2)
    c = d.client.reader(topic, [0, 1])
    try:
        c.pause(topic, 0)
        sent = numbered(topic, 400, 2)
        d.send(sent)
        got = d.collect(c, 200)
        check(all(r.partition == 1 for r in got), "records of a paused partition were read")
        check(not c.poll(0.5), "records of a paused partition were read")
        c.resume(topic, 0)
        same_in_order(sent, got + d.collect(c, 200))
    finally:
        c.close()


def create_again(d, topic):
    """Creates a topic whose deletion may be under way, or which a client brought back by asking for it."""
    try:
        d.client.create_topic(topic, 1)
    except Exception:
        d.client.delete_topic(topic)
        raise


def topic_deleted(d):
    topic = d.topic("topic-deleted")
    d.client.create_topic(topic, 1)
    d.send(numbered(topic, 100, 1))
    c = d.client.reader(topic, [0])
    try:
        d.collect(c, 100)
        d.client.delete_topic(topic)
        for _ in range(3):
            try:
                got = c.poll(0.3)
            except Exception:
                break  # the reader may be told
            check(not got, "records of a deleted topic were read")
    finally:
        c.close()
    until(lambda: create_again(d, topic))
    sent = numbered(topic, 10, 1)
    d.send(sent)
    same_in_order(sent, d.read_all(topic, 1, len(sent)))


def read_and_commit(d, group, topic, n):
    c = d.client.member(group, topic)
    try:
        got = d.collect(c, n)
        c.commit()
        return got
    finally:
        c.close()


def group_commit(d):
    topic = d.topic("group-commit")
    group = topic + "-group"
    d.client.create_topic(topic, 2)
    sent = numbered(topic, 400, 2)
    d.send(sent[:200])
    got = read_and_commit(d, group, topic, 200)
    for p in (0, 1):
        have = d.client.committed(group, topic, p)
        check(have == 100, f"partition {p}: {have} is committed, expected 100")
    d.send(sent[200:])
    same_in_order(sent, got + read_and_commit(d, group, topic, 200))


def group_rebalance(d):
    topic = d.topic("group-rebalance")
    group = topic + "-group"
    d.client.create_topic(topic, 4)
    load, members = Load(d, topic, 4), []
    try:
        for i in range(3):
            members.append(Reading(d.client.member(group, topic), True))
            step(f"member {i + 1}", members[i])
        members[0].finish()
        step("member 2, after the first one left", members[1])
        step("member 3, after the first one left", members[2])
        load.finish()
        load.covers(*members)
    finally:
        load.finish()
        for m in members:
            m.finish()


def group_848(d):
    """Two members of KIP-848: the brokers' heartbeat interval makes each change take seconds."""
    if not hasattr(d.client, "member_848"):
        raise NotApplicable("the client has no groups of KIP-848")
    topic = d.topic("group-848")
    group = topic + "-group"
    d.client.create_topic(topic, 4)
    load, members = Load(d, topic, 4), []
    try:
        for i in range(2):
            members.append(Reading(d.client.member_848(group, topic), True))
            step(f"member {i + 1}", members[i])
        members[0].finish()
        members[1].all_of(4)
        load.finish()
        load.covers(*members)
    finally:
        load.finish()
        for m in members:
            m.finish()


def step(when, *things):
    for t in things:
        try:
            t.more(30)
        except AssertionError as e:
            raise AssertionError(f"{when}: {e}") from None


def through(d, load, reading, ask, **which):
    step("before", load, reading)
    d.ask(ask, **which)
    step("while a broker is away", load, reading)
    d.ask("restore")
    step("after it is back", load, reading)


def fault(ask, name):
    def scenario(d):
        topic = d.topic(name)
        d.client.create_topic(topic, 3)
        reading = Reading(d.client.reader(topic, range(3)), False)
        load = Load(d, topic, 3)
        try:
            through(d, load, reading, ask, topic=topic)
            load.finish()
            load.covers(reading)
        finally:
            load.finish()
            reading.finish()
        load.once(reading)
    return scenario


def coordinator_killed(d):
    topic = d.topic("coordinator-killed")
    group = topic + "-group"
    d.client.create_topic(topic, 3)
    reading = Reading(d.client.member(group, topic), True)
    load = Load(d, topic, 3)
    try:
        through(d, load, reading, "kill-coordinator", topic=topic, group=group)
        load.finish()
        load.covers(reading)
    finally:
        load.finish()
        reading.finish()


def admin_topics(d):
    topic, c = d.topic("admin-topics"), d.client

    def partitions_are(want):
        have = c.partitions(topic)
        check(have == want, f"{have} partitions are described, expected {want}")

    def listed(want):
        check((topic in c.topics()) == want, f"topic listed: {not want}, expected {want}")

    def grow():
        c.add_partitions(topic, 5)
        until(lambda: partitions_are(5))

    c.create_topic(topic, 3, {"retention.ms": "7200000"})
    until(lambda: partitions_are(3))
    refused("a topic that exists", lambda: c.create_topic(topic, 3))
    refused("a topic with an invalid name", lambda: c.create_topic(topic + "/bad name", 1))
    until(lambda: listed(True))
    d.possible(grow)
    c.delete_topic(topic)
    until(lambda: listed(False))
    refused("the deletion of a topic that does not exist", lambda: c.delete_topic(topic))


def admin_configs(d):
    topic, c = d.topic("admin-configs"), d.client

    def is_(key, want):
        have = c.topic_config(topic).get(key)
        check(have == want, f"{key} is {have}, expected {want}")

    c.create_topic(topic, 1, {"retention.ms": "7200000"})
    until(lambda: is_("retention.ms", "7200000"))
    until(lambda: is_("cleanup.policy", "delete"))
    c.set_topic_config(topic, "retention.ms", "3600000")
    until(lambda: is_("retention.ms", "3600000"))
    refused("retention.ms set to a word", lambda: c.set_topic_config(topic, "retention.ms", "soon"))
    refused("an unknown config", lambda: c.create_topic(topic + "-bad", 1, {"no.such.config": "1"}))
    is_("retention.ms", "3600000")


def admin_groups(d):
    topic, c = d.topic("admin-groups"), d.client
    group = topic + "-group"

    def is_(state, members):
        have = c.group(group)
        check(have == (state, members), f"state and members of the group are {have}, expected {state}, {members}")

    def move():
        c.set_committed(group, topic, 0, 20)
        have = c.committed(group, topic, 0)
        check(have == 20, f"{have} is committed, 20 was set")

    def delete():
        c.delete_group(group)
        check(group not in c.groups(), "a deleted group is listed")

    c.create_topic(topic, 1)
    d.send(numbered(topic, 50, 1))
    m = c.member(group, topic)
    try:
        d.collect(m, 50)
        m.commit()
        check(group in c.groups(), "the group is not listed")
        until(lambda: is_("Stable", 1))
        d.possible(lambda: refused("the deletion of a group with a member", lambda: c.delete_group(group)))
    finally:
        m.close()
    until(lambda: is_("Empty", 0))
    d.possible(move)
    d.possible(delete)


def admin_offsets(d):
    topic, c = d.topic("admin-offsets"), d.client

    def are(first, following):
        have = (c.offset(topic, 0, EARLIEST), c.offset(topic, 0, LATEST))
        check(have == (first, following), f"earliest and latest offset are {have}, expected {first}, {following}")

    def delete():
        c.delete_records(topic, 0, 10)
        are(10, 50)
        got = d.read_all(topic, 1, 40)
        check(got[0].offset == 10, f"the first record read is {got[0].offset}, expected 10")

    c.create_topic(topic, 1)
    until(lambda: are(0, 0))  # the broker that is asked may not know the topic yet, and librdkafka asks once
    d.send(numbered(topic, 50, 1))
    are(0, 50)
    d.possible(delete)


SCENARIOS = {
    **{"codec-" + c: codec(c) for c in ("none", "gzip", "snappy", "lz4", "zstd")},
    "shapes": shapes, "idempotent": idempotent, "seek-times": seek_times, "pause-resume": pause_resume,
    "group-commit": group_commit, "group-rebalance": group_rebalance, "group-848": group_848,
    "admin-topics": admin_topics, "admin-configs": admin_configs, "admin-groups": admin_groups, "admin-offsets": admin_offsets,
    "topic-deleted": topic_deleted,
    "leader-moved": fault("move-leader", "leader-moved"), "broker-killed": fault("kill-leader", "broker-killed"),
    "coordinator-killed": coordinator_killed,
}
