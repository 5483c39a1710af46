'use strict'
// The scenarios; scenarios.md, two folders up, says what each must show.

const { NotApplicable, pause } = require('./client')
const { Load, Reading } = require('./load')

function check(ok, what) {
  if (!ok) throw new Error(what)
}

// until tries until f succeeds, 30 seconds at most; the last error counts.
async function until(f) {
  const end = Date.now() + 30000
  for (;;) {
    try {
      return await f()
    } catch (e) {
      if (Date.now() > end) throw e
    }
    await pause(100)
  }
}

async function refused(what, f) {
  try {
    await f()
  } catch (e) {
    return
  }
  throw new Error(what + ' was accepted')
}

function numbered(topic, n, partitions) {
  return Array.from({ length: n }, (_, i) => ({ topic, partition: i % partitions, key: Buffer.from(`key-${i}`),
    value: Buffer.from(`${i % partitions}:${Math.floor(i / partitions)}:${'thermocline '.repeat(8)}`) }))
}

// send sends each partition's records for themselves: KafkaJS sends all that
// went to a broker again when one partition of them was refused.
async function send(d, records, codec = 'none') {
  const p = await d.client.producer(codec, false)
  for (const partition of new Set(records.map((r) => r.partition))) await p.send(records.filter((r) => r.partition === partition))
  await p.close()
}

async function collect(c, n) {
  const out = []
  while (out.length < n) out.push(...(await c.poll(500)))
  out.push(...(await c.poll(50)))
  check(out.length === n, `${out.length} records read, expected ${n}`)
  return out
}

async function readAll(d, topic, n) {
  const c = await d.client.reader(topic)
  const out = await collect(c, n)
  await c.close()
  return out
}

const equal = (a, b) => (a === null || b === null ? a === b : Buffer.compare(a, b) === 0)

// flat lists headers as [name, value] pairs; KafkaJS gives doubled ones as lists.
function flat(headers = {}) {
  return Object.entries(headers).flatMap(([k, v]) => (Array.isArray(v) ? v : [v]).map((x) => `${k}=${x}`))
}

function sameInOrder(sent, got) {
  const want = new Map()
  for (const r of sent) want.set(r.partition, [...(want.get(r.partition) || []), r])
  const following = new Map()
  for (const r of got) {
    const i = following.get(r.partition) || 0
    following.set(r.partition, i + 1)
    const w = want.get(r.partition)[i]
    const where = `partition ${r.partition}, offset ${r.offset}`
    check(r.offset === i, `${where} where ${i} was expected`)
    check(equal(w.key, r.key), `${where}: key ${r.key}, sent ${w.key}`)
    check(equal(w.value, r.value), `${where}: another value than was sent`)
    check(flat(w.headers).join() === flat(r.headers).join(), `${where}: headers ${flat(r.headers)}, sent ${flat(w.headers)}`)
  }
  check(got.length === sent.length, `${got.length} records read, ${sent.length} sent`)
}

const codec = (name) => async (d) => {
  const topic = d.topic('codec-' + name)
  await d.client.createTopic(topic, 3)
  const sent = numbered(topic, 1500, 3)
  await send(d, sent, name)
  sameInOrder(sent, await readAll(d, topic, sent.length))
}

async function idempotent(d) {
  const topic = d.topic('idempotent')
  await d.client.createTopic(topic, 3)
  const sent = numbered(topic, 6000, 3)
  const p = await d.client.producer('none', true)
  for (let i = 0; i < sent.length; i += 1000) await p.send(sent.slice(i, i + 1000))
  await p.close()
  sameInOrder(sent, await readAll(d, topic, sent.length))
}

function filler(n) {
  const out = Buffer.alloc(n)
  let x = 1
  for (let i = 0; i < n; i++) {
    x = (Math.imul(x, 1664525) + 1013904223) >>> 0
    out[i] = 97 + ((x >>> 24) % 26)
  }
  return out
}

async function shapes(d) {
  const topic = d.topic('shapes')
  await d.client.createTopic(topic, 1)
  const b = Buffer.from
  d.notes.push('the client has no null header values')
  const sent = [
    { key: null, value: b('no key') },
    { key: b('tombstone'), value: null },
    { key: b(''), value: b('') },
    { key: null, value: b('x') },
    { key: b('with headers'), value: b('v'), headers: { h: ['a', 'b'], empty: '' } },
    { key: b('ключ'.repeat(100)), value: b('long key') },
    { key: null, value: filler(1048000) },
  ].map((r) => ({ topic, partition: 0, ...r }))
  const p = await d.client.producer('none', false)
  for (const r of sent) await p.send([r])
  await refused('a record of 1100000 bytes', () => p.send([{ topic, partition: 0, key: null, value: filler(1100000) }]))
  sent.push({ topic, partition: 0, key: null, value: b('after the refused one') })
  await p.send(sent.slice(-1))
  await p.close()
  sameInOrder(sent, await readAll(d, topic, sent.length))
}

async function seekTimes(d) {
  const topic = d.topic('seek-times')
  await d.client.createTopic(topic, 1)
  const base = Date.now() - 3600000
  await send(d, Array.from({ length: 100 }, (_, i) => ({ topic, partition: 0, key: null, value: Buffer.from(`0:${i}`), timestamp: String(base + i * 1000) })))
  const c = await d.client.reader(topic)
  const got = await collect(c, 100)
  check(got.every((r) => r.timestamp === base + r.offset * 1000), 'other timestamps than were sent')
  for (const i of [0, 10, 99]) {
    const have = await d.client.offsetAt(topic, 0, base + i * 1000 - 1)
    check(have === i, `offset for the time of record ${i}: ${have}`)
  }
  const none = await d.client.offsetAt(topic, 0, base + 3600000)
  check(none === 100 || none === -1, `offset for a time after the last record: ${none}`) // KafkaJS gives the end
  for (const to of [42, 0, 99]) {
    c.seek(0, to)
    let next = []
    while (next.length === 0) next = await c.poll(500)
    check(next[0].offset === to, `after seeking to ${to} the next record is ${next[0].offset}`)
  }
  await c.close()
}

async function pauseResume(d) {
  const topic = d.topic('pause-resume')
  await d.client.createTopic(topic, 2)
  const c = await d.client.reader(topic)
  c.pause(0)
  const sent = numbered(topic, 400, 2)
  await send(d, sent)
  const got = await collect(c, 200)
  check(got.every((r) => r.partition === 1), 'records of a paused partition were read')
  check((await c.poll(500)).length === 0, 'records of a paused partition were read')
  c.resume(0)
  sameInOrder(sent, [...got, ...(await collect(c, 200))])
  await c.close()
}

async function topicDeleted(d) {
  const topic = d.topic('topic-deleted')
  await d.client.createTopic(topic, 1)
  await send(d, numbered(topic, 100, 1))
  const c = await d.client.reader(topic)
  await collect(c, 100)
  await d.client.deleteTopic(topic)
  for (let i = 0; i < 3; i++) check((await c.poll(300)).length === 0, 'records of a deleted topic were read')
  await c.close()
  await until(async () => {
    try {
      await d.client.createTopic(topic, 1)
    } catch (e) { // its deletion is under way, or a client brought it back by asking for it
      await d.client.deleteTopic(topic)
      throw e
    }
  })
  const sent = numbered(topic, 10, 1)
  await send(d, sent)
  sameInOrder(sent, await readAll(d, topic, sent.length))
}

async function readAndCommit(d, group, topic, n) {
  const c = await d.client.member(group, topic)
  const got = await collect(c, n)
  await c.commit()
  await c.close()
  return got
}

async function groupCommit(d) {
  const topic = d.topic('group-commit')
  const group = topic + '-group'
  await d.client.createTopic(topic, 2)
  const sent = numbered(topic, 400, 2)
  await send(d, sent.slice(0, 200))
  const got = await readAndCommit(d, group, topic, 200)
  for (const p of [0, 1]) {
    const have = await d.client.committed(group, topic, p)
    check(have === 100, `partition ${p}: ${have} is committed, expected 100`)
  }
  await send(d, sent.slice(200))
  sameInOrder(sent, [...got, ...(await readAndCommit(d, group, topic, 200))])
}

async function groupRebalance(d) {
  const topic = d.topic('group-rebalance')
  const group = topic + '-group'
  await d.client.createTopic(topic, 4)
  const load = await Load.start(d, topic, 4)
  const members = []
  try {
    for (let i = 0; i < 3; i++) {
      members.push(new Reading(await d.client.member(group, topic), true))
      await step(`member ${i + 1}`, members[i])
    }
    await members[0].finish()
    await step('member 2, after the first one left', members[1])
    await step('member 3, after the first one left', members[2])
    await load.finish()
    await load.covers(...members)
  } finally {
    await load.finish()
    for (const m of members) await m.finish()
  }
}

async function step(when, ...things) {
  for (const t of things) {
    await t.more(30).catch((e) => { throw new Error(`${when}: ${e.message}`) })
  }
}

async function through(d, load, reading, ask, which) {
  await step('before', load, reading)
  await d.ask(ask, which)
  await step('while a broker is away', load, reading)
  await d.ask('restore')
  await step('after it is back', load, reading)
}

const fault = (ask, name) => async (d) => {
  const topic = d.topic(name)
  await d.client.createTopic(topic, 3)
  const reading = new Reading(await d.client.reader(topic), false)
  const load = await Load.start(d, topic, 3)
  try {
    await through(d, load, reading, ask, { topic })
    await load.finish()
    await load.covers(reading)
  } finally {
    await load.finish()
    await reading.finish()
  }
}

async function coordinatorKilled(d) {
  const topic = d.topic('coordinator-killed')
  const group = topic + '-group'
  await d.client.createTopic(topic, 3)
  const reading = new Reading(await d.client.member(group, topic), true)
  const load = await Load.start(d, topic, 3)
  try {
    await through(d, load, reading, 'kill-coordinator', { topic, group })
    await load.finish()
    await load.covers(reading)
  } finally {
    await load.finish()
    await reading.finish()
  }
}

async function adminTopics(d) {
  const topic = d.topic('admin-topics')
  const c = d.client
  const partitionsAre = async (want) => {
    const have = await c.partitions(topic)
    check(have === want, `${have} partitions are described, expected ${want}`)
  }
  const listed = async (want) => check((await c.topics()).includes(topic) === want, `topic listed: ${!want}, expected ${want}`)
  await c.createTopic(topic, 3, { 'retention.ms': '7300000' })
  await until(() => partitionsAre(3))
  await refused('a topic that exists', () => c.createTopic(topic, 3))
  await refused('a topic with an invalid name', () => c.createTopic(topic + '/bad name', 1))
  await until(() => listed(true))
  await c.addPartitions(topic, 5)
  await until(() => partitionsAre(5))
  await c.deleteTopic(topic)
  await until(() => listed(false))
  await refused('the deletion of a topic that does not exist', () => c.deleteTopic(topic))
}

async function adminConfigs(d) {
  const topic = d.topic('admin-configs')
  const c = d.client
  const is = async (key, want) => {
    const have = (await c.topicConfig(topic))[key]
    check(have === want, `${key} is ${have}, expected ${want}`)
  }
  await c.createTopic(topic, 1, { 'retention.ms': '7300000' })
  await until(() => is('retention.ms', '7300000'))
  await until(() => is('cleanup.policy', 'delete'))
  await c.setTopicConfig(topic, 'retention.ms', '3600000')
  await until(() => is('retention.ms', '3600000'))
  await refused('retention.ms set to a word', () => c.setTopicConfig(topic, 'retention.ms', 'soon'))
  await refused('an unknown config', () => c.createTopic(topic + '-bad', 1, { 'no.such.config': '1' }))
  await is('retention.ms', '3600000')
}

async function adminGroups(d) {
  const topic = d.topic('admin-groups')
  const group = topic + '-group'
  const c = d.client
  const is = async (state, members) => {
    const have = await c.group(group)
    check(have.state === state && have.members === members, `the group is ${have.state} with ${have.members} members, expected ${state} with ${members}`)
  }
  await c.createTopic(topic, 1)
  await send(d, numbered(topic, 50, 1))
  const m = await c.member(group, topic)
  await collect(m, 50)
  await m.commit()
  check((await c.groups()).includes(group), 'the group is not listed')
  await until(() => is('Stable', 1))
  await refused('the deletion of a group with a member', () => c.deleteGroup(group))
  await m.close()
  await until(() => is('Empty', 0))
  await c.setCommitted(group, topic, 0, 20)
  const have = await c.committed(group, topic, 0)
  check(have === 20, `${have} is committed, 20 was set`)
  await c.deleteGroup(group)
  check(!(await c.groups()).includes(group), 'a deleted group is listed')
}

async function adminOffsets(d) {
  const topic = d.topic('admin-offsets')
  const c = d.client
  const are = async (first, next) => {
    const have = await c.ends(topic, 0)
    check(have[0] === first && have[1] === next, `earliest and latest offset are ${have}, expected ${first}, ${next}`)
  }
  await c.createTopic(topic, 1)
  await are(0, 0)
  await send(d, numbered(topic, 50, 1))
  await are(0, 50)
  await c.deleteRecords(topic, 0, 10)
  await are(10, 50)
  const got = await readAll(d, topic, 40)
  check(got[0].offset === 10, `the first record read is ${got[0].offset}, expected 10`)
}

async function group848() {
  throw new NotApplicable('the client has no groups of KIP-848')
}

const SCENARIOS = {
  shapes, idempotent, 'seek-times': seekTimes, 'pause-resume': pauseResume, 'group-commit': groupCommit, 'group-rebalance': groupRebalance, 'group-848': group848,
  'admin-topics': adminTopics, 'admin-configs': adminConfigs, 'admin-groups': adminGroups, 'admin-offsets': adminOffsets,
  'topic-deleted': topicDeleted, 'leader-moved': fault('move-leader', 'leader-moved'), 'broker-killed': fault('kill-leader', 'broker-killed'),
  'coordinator-killed': coordinatorKilled,
}
for (const name of ['none', 'gzip', 'snappy', 'lz4', 'zstd']) SCENARIOS['codec-' + name] = codec(name)

module.exports = { SCENARIOS }
