'use strict'
// Records sent and read while something happens to the brokers or the group.

const { pause } = require('./client')

// waitFor waits for a condition, 90 seconds at most.
async function waitFor(condition, otherwise) {
  const end = Date.now() + 90000
  while (!condition()) {
    if (Date.now() > end) throw new Error(otherwise())
    await pause(20)
  }
}

// Load sends numbered records to every partition until it is finished. Its
// producer is not idempotent, as KafkaJS calls its own experimental; what it
// sends again after an error may be there twice. Each partition has a send of
// its own: in one for several, KafkaJS forgets those whose leader has moved to
// a broker that has answered for another (sendMessages.js notes answers by
// broker), and says that all are sent.
class Load {
  static async start(d, topic, partitions) {
    const l = new Load()
    Object.assign(l, { topic, partitions, acked: new Set(), problem: null, stopped: false })
    l.producer = await d.client.producer('none', false)
    l.done = l.work()
    return l
  }

  async work() {
    for (let i = 0; !this.stopped; i++) {
      const values = Array.from({ length: this.partitions }, (_, p) => `${p}:${i}`)
      try {
        await Promise.all(values.map((v, partition) => this.producer.send([{ topic: this.topic, partition, key: null, value: v }])))
        values.forEach((v) => this.acked.add(v))
      } catch (e) {
        this.problem = e
      }
      await pause(20)
    }
    await this.producer.close()
  }

  more(n) {
    const start = this.acked.size
    return waitFor(() => this.acked.size - start >= n,
      () => `${this.acked.size - start} records acknowledged, ${n} expected (last error: ${this.problem})`)
  }

  finish() {
    this.stopped = true
    return this.done
  }

  // covers waits until every acknowledged record was read by one of the readers.
  covers(...readers) {
    const missing = () => {
      const seen = new Set(readers.flatMap((r) => r.got.map((x) => String(x.value))))
      return [...this.acked].filter((v) => !seen.has(v))
    }
    return waitFor(() => missing().length === 0,
      () => `${missing().length} of ${this.acked.size} acknowledged records were not read, such as ${missing()[0]}`)
  }
}

// Reading polls a member and keeps what it got.
class Reading {
  constructor(member, commit) {
    Object.assign(this, { member, commit, got: [], problem: null, stopped: false })
    this.done = this.work()
  }

  async work() {
    while (!this.stopped) {
      try {
        const got = await this.member.poll(200)
        this.got.push(...got)
        if (this.commit && got.length > 0) await this.member.commit() // may meet a rebalance; the next one counts
      } catch (e) {
        this.problem = e
      }
    }
    await this.member.close()
  }

  more(n) {
    const start = this.got.length
    return waitFor(() => this.got.length - start >= n,
      () => `${this.got.length - start} records read, ${n} expected (last error: ${this.problem})`)
  }

  finish() {
    this.stopped = true
    return this.done
  }
}

module.exports = { Load, Reading }
