'use strict'
// KafkaJS behind the few methods that the scenarios use.

const { Kafka, CompressionTypes, CompressionCodecs, ConfigResourceTypes, logLevel } = require('kafkajs')
const snappy = require('kafkajs-snappy')
const lz4 = require('lz4js')
const xxh32 = require('lz4js/xxh32.js')
const zstd = require('@bokuweb/zstd-wasm')

// KafkaJS has gzip itself; other codecs are given to it.
CompressionCodecs[CompressionTypes.Snappy] = snappy
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  // lz4js marks blocks as dependent, which Kafka refuses. Up to 4 MiB there is
  // one block, which depends on nothing: the frame's flags may say so.
  compress: async (encoder) => {
    const frame = Buffer.from(lz4.compress(encoder.buffer))
    frame[4] |= 0x20
    frame[6] = (xxh32.hash(0, frame, 4, 2) >> 8) & 0xff
    return frame
  },
  decompress: async (buffer) => Buffer.from(lz4.decompress(buffer)),
})
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async (encoder) => Buffer.from(zstd.compress(encoder.buffer)),
  decompress: async (buffer) => Buffer.from(zstd.decompress(buffer)),
})

const codecs = {
  none: CompressionTypes.None, gzip: CompressionTypes.GZIP, snappy: CompressionTypes.Snappy, lz4: CompressionTypes.LZ4, zstd: CompressionTypes.ZSTD,
}

// NotApplicable: the client has no means for a scenario, or nobody answers.
class NotApplicable extends Error {}

class Client {
  static async connect(bootstrap) {
    const c = new Client()
    c.version = 'kafkajs ' + require('kafkajs/package.json').version
    await zstd.init()
    c.kafka = new Kafka({ clientId: 'conform', brokers: bootstrap, logLevel: logLevel.NOTHING, connectionTimeout: 3000,
      retry: { initialRetryTime: 50, maxRetryTime: 1000, retries: 30 } })
    c.admin = c.kafka.admin({ retry: { initialRetryTime: 50, maxRetryTime: 1000, retries: 6 } })
    await c.admin.connect()
    c.open = new Set()
    c.readers = 0
    return c
  }

  // closeAll closes what a scenario left open.
  async closeAll() {
    for (const x of this.open) await x.close().catch(() => {})
  }

  async createTopic(topic, partitions, config = {}) {
    const made = await this.admin.createTopics({ waitForLeaders: true,
      topics: [{ topic, numPartitions: partitions, configEntries: Object.entries(config).map(([name, value]) => ({ name, value })) }] })
    if (!made) throw new Error('the topic exists')
  }

  deleteTopic(topic) { return this.admin.deleteTopics({ topics: [topic] }) }

  topics() { return this.admin.listTopics() }

  async partitions(topic) {
    const { topics } = await this.admin.fetchTopicMetadata({ topics: [topic] })
    return topics[0].partitions.length
  }

  addPartitions(topic, count) { return this.admin.createPartitions({ topicPartitions: [{ topic, count }] }) }

  async topicConfig(topic) {
    const { resources } = await this.admin.describeConfigs({ resources: [{ type: ConfigResourceTypes.TOPIC, name: topic }] })
    return Object.fromEntries(resources[0].configEntries.map((e) => [e.configName, e.configValue]))
  }

  setTopicConfig(topic, name, value) {
    return this.admin.alterConfigs({ resources: [{ type: ConfigResourceTypes.TOPIC, name: topic, configEntries: [{ name, value }] }] })
  }

  async groups() { return (await this.admin.listGroups()).groups.map((g) => g.groupId) }

  async group(group) {
    const [d] = (await this.admin.describeGroups([group])).groups
    return { state: d.state, members: d.members.length }
  }

  async committed(group, topic, partition) {
    const [t] = await this.admin.fetchOffsets({ groupId: group, topics: [topic] })
    return Number(t.partitions.find((p) => p.partition === partition).offset)
  }

  setCommitted(group, topic, partition, offset) {
    return this.admin.setOffsets({ groupId: group, topic, partitions: [{ partition, offset: String(offset) }] })
  }

  deleteGroup(group) { return this.admin.deleteGroups([group]) }

  async ends(topic, partition) {
    const p = (await this.admin.fetchTopicOffsets(topic)).find((x) => x.partition === partition)
    return [Number(p.low), Number(p.high)]
  }

  async offsetAt(topic, partition, millis) {
    const all = await this.admin.fetchTopicOffsetsByTimestamp(topic, millis)
    return Number(all.find((x) => x.partition === partition).offset)
  }

  deleteRecords(topic, partition, before) {
    return this.admin.deleteTopicRecords({ topic, partitions: [{ partition, offset: String(before) }] })
  }

  async producer(codec, idempotent) {
    const p = this.kafka.producer({ idempotent, maxInFlightRequests: idempotent ? 1 : undefined, allowAutoTopicCreation: false })
    await p.connect()
    const producer = {
      send: (records) => p.sendBatch({ acks: -1, compression: codecs[codec], topicMessages: byTopic(records) }),
      close: async () => {
        this.open.delete(producer)
        await p.disconnect()
      },
    }
    this.open.add(producer)
    return producer
  }

  // reader: KafkaJS reads in groups only; each reader gets its own.
  reader(topic) { return this.member(`${topic}-reader-${this.readers++}`, topic) }

  async member(group, topic) {
    const m = new Member(this, group, topic)
    this.open.add(m)
    await m.start()
    return m
  }
}

function byTopic(records) {
  const out = new Map()
  for (const { topic, ...message } of records) {
    if (!out.has(topic)) out.set(topic, { topic, messages: [] })
    out.get(topic).messages.push(message)
  }
  return [...out.values()]
}

// queueMax is how many records a member holds before it stops fetching.
const queueMax = 5000

class Member {
  constructor(client, group, topic) {
    this.client = client
    this.topic = topic
    this.queue = []
    this.taken = new Map() // partition → next offset
    this.consumer = client.kafka.consumer({ groupId: group, sessionTimeout: 10000, heartbeatInterval: 300, maxWaitTimeInMs: 100,
      allowAutoTopicCreation: false, metadataMaxAge: 5000 })
  }

  async start() {
    await this.consumer.connect()
    await this.consumer.subscribe({ topics: [this.topic], fromBeginning: true })
    const joined = new Promise((resolve) => this.consumer.on(this.consumer.events.GROUP_JOIN, resolve))
    await this.consumer.run({ autoCommit: false, eachBatch: async ({ batch, heartbeat, isStale }) => {
      while (this.queue.length > queueMax) {
        await heartbeat()
        await pause(20)
      }
      if (isStale()) return // a seek or pause came between
      for (const m of batch.messages) {
        this.queue.push({ partition: batch.partition, offset: Number(m.offset), key: m.key, value: m.value, headers: m.headers, timestamp: Number(m.timestamp) })
      }
    } })
    await joined
  }

  // poll waits up to some milliseconds for records.
  async poll(millis) {
    const end = Date.now() + millis
    while (this.queue.length === 0 && Date.now() < end) await pause(5)
    const got = this.queue
    this.queue = []
    for (const r of got) this.taken.set(r.partition, r.offset + 1)
    return got
  }

  seek(partition, offset) {
    this.queue = []
    this.consumer.seek({ topic: this.topic, partition, offset: String(offset) })
  }

  pause(partition) { this.consumer.pause([{ topic: this.topic, partitions: [partition] }]) }

  resume(partition) { this.consumer.resume([{ topic: this.topic, partitions: [partition] }]) }

  commit() {
    return this.consumer.commitOffsets([...this.taken].map(([partition, offset]) => ({ topic: this.topic, partition, offset: String(offset) })))
  }

  async close() {
    this.client.open.delete(this)
    await this.consumer.disconnect()
  }
}

const pause = (millis) => new Promise((resolve) => setTimeout(resolve, millis))

module.exports = { NotApplicable, Client, pause }
