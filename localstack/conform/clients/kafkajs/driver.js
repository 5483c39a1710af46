'use strict'
// The conformance driver of KafkaJS. scenarios.md says what the scenarios do
// and how a driver talks to the runner.

const readline = require('readline')
const { SCENARIOS } = require('./scenarios')
const { NotApplicable, Client } = require('./client')

// scenarioMillis bounds one scenario; the runner has a longer limit.
const scenarioMillis = 120000

const say = (line) => process.stdout.write(JSON.stringify(line) + '\n')

const lines = readline.createInterface({ input: process.stdin })
const answers = lines[Symbol.asyncIterator]()

// ask has the runner do something, and returns once it is done.
async function ask(what, { topic = '', partition = 0, group = '' } = {}) {
  say({ ask: what, topic, partition, group })
  const { value, done } = await answers.next()
  if (done) throw new NotApplicable('nobody answers: run this scenario through make conform')
  const answer = JSON.parse(value)
  if (!answer.ok) throw new NotApplicable(answer.reason)
}

async function run(client, name, prefix) {
  const start = Date.now()
  const d = { client, ask, notes: [], topic: (n) => `${prefix}-${n}` }
  let result = 'pass'
  let detail = ''
  let timer
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`not done within ${scenarioMillis / 1000} s`)), scenarioMillis)
  })
  try {
    await Promise.race([SCENARIOS[name](d), late])
    detail = d.notes.join('; ')
  } catch (e) {
    result = e instanceof NotApplicable ? 'na' : 'fail'
    detail = e instanceof NotApplicable ? e.message : `${e.name}: ${e.message}`
    if (result === 'fail') console.error(e)
  } finally {
    clearTimeout(timer)
    await client.closeAll()
  }
  say({ scenario: name, result, detail, seconds: (Date.now() - start) / 1000 })
  return result !== 'fail'
}

async function main() {
  const flags = {}
  for (let i = 2; i + 1 < process.argv.length; i += 2) flags[process.argv[i]] = process.argv[i + 1]
  const client = await Client.connect(flags['--bootstrap'].split(','))
  say({ version: client.version })
  let ok = true
  for (const name of flags['--scenario'].split(',')) ok = (await run(client, name, flags['--topic-prefix'])) && ok
  process.exit(ok ? 0 : 1)
}

main().catch((e) => {
  console.error(e)
  process.exit(1)
})
