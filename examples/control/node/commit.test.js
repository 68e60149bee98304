// Tests of a consumer whose commits meet faults. KCORE_CONTROL and KCORE_BOOTSTRAP name the running broker.
import assert from 'node:assert/strict'
import { afterEach, test } from 'node:test'
import kafkajs from 'kafkajs'

const { KCORE_CONTROL, KCORE_BOOTSTRAP } = process.env

/** Sends a request to the control server and returns the object of its response. */
async function control(method, path, body) {
  const response = await fetch(KCORE_CONTROL + path, { method, body: body && JSON.stringify(body) })
  const text = await response.text()
  assert.ok(response.ok, text)
  return text ? JSON.parse(text) : undefined
}

const kafka = new kafkajs.Kafka({
  brokers: [KCORE_BOOTSTRAP],
  clientId: 'worker',
  logLevel: kafkajs.logLevel.NOTHING,
  retry: { initialRetryTime: 20, retries: 8 },
})

/** Produces a record, and returns a running consumer and a promise of the record's offset. */
async function consume(name) {
  await control('POST', '/topics', { name })
  const producer = kafka.producer()
  await producer.connect()
  await producer.send({ topic: name, messages: [{ value: 'work' }] })
  await producer.disconnect()
  const consumer = kafka.consumer({ groupId: name, sessionTimeout: 10_000, heartbeatInterval: 100 })
  await consumer.connect()
  await consumer.subscribe({ topic: name, fromBeginning: true })
  const received = new Promise((resolve, reject) => {
    consumer
      .run({ autoCommit: false, eachMessage: async ({ message }) => resolve(message.offset) })
      .catch(reject)
  })
  return { consumer, received }
}

afterEach(() => control('DELETE', '/faults'))

test('a commit is repeated while the coordinator loads', async () => {
  const name = 'node-retry'
  const { consumer, received } = await consume(name)
  try {
    assert.equal(await received, '0')
    const fault = await control('POST', '/faults', {
      action: 'fail', api: 'OffsetCommit', group: name, error: 'COORDINATOR_LOAD_IN_PROGRESS', times: 1,
    })
    await consumer.commitOffsets([{ topic: name, partition: 0, offset: '1' }])
    assert.equal((await control('GET', `/faults/${fault.id}`)).applied, 1)
    await control('POST', `/groups/${name}/assert-committed`, {
      offsets: [{ topic: name, partition: 0, offset: 1 }],
    })
  } finally {
    await consumer.disconnect()
  }
})

test('an expired member joins again', async () => {
  const name = 'node-expired'
  const { consumer, received } = await consume(name)
  try {
    await received
    const before = await control('POST', `/groups/${name}/wait`, { state: 'Stable', members: 1 })
    await control('POST', `/groups/${name}/expire`, { client_id: 'worker' })
    const after = await control('POST', `/groups/${name}/wait`, { state: 'Stable', members: 1, timeout: 30 })
    assert.ok(after.epoch > before.epoch, `${after.epoch} after ${before.epoch}`)
    const { events } = await control('GET', `/groups/${name}/history`)
    assert.ok(events.some((event) => event.kind === 'fenced'))
  } finally {
    await consumer.disconnect()
  }
})
