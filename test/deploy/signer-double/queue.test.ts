import http from 'node:http'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { toChecksumAddress } from '../../../deploy/signer-double/wire/address.ts'
import { directSink } from '../../../deploy/signer-double/events/direct-sink.ts'
import {
  createLossyQueue,
  createRandom,
  NO_FAULTS,
} from '../../../deploy/signer-double/events/lossy-queue.ts'
import type { EncodedEvent, Faults } from '../../../deploy/signer-double/events/lossy-queue.ts'
import { callbackSink, fileSink, kafkaSink } from '../../../deploy/signer-double/events/sinks.ts'
import { startDouble, startWebhook } from './support.ts'

const event = (n: number): EncodedEvent => ({ id: `${n}`, type: 't', bytes: `{"id":"${n}"}` })

async function run(faults: Partial<Faults>, seed = 7, count = 90) {
  const bytes: string[] = []
  const queue = createLossyQueue({
    sink: callbackSink((line) => bytes.push(line)),
    faults: { ...NO_FAULTS, ...faults },
    random: createRandom(seed),
    capacity: 1000,
  })
  const lost: number[] = []
  for (let n = 0; n < count; n += 1) {
    if (!queue.push(event(n))) lost.push(n)
  }
  await queue.stop()
  const stats = queue.stats()
  expect(stats.emitted).toBe(count)
  expect(stats.delivered).toBe(bytes.length)
  expect(stats.delivered).toBe(count - stats.dropped + stats.duplicated)
  return { bytes, lost }
}

const inOrder = Array.from({ length: 90 }, (_, n) => event(n).bytes)

describe('the lossy queue', () => {
  it('delivers everything once and in order without faults', async () => {
    expect((await run({})).bytes).toEqual(inOrder)
  })

  it('drops the same events for the same seed and others for another', async () => {
    const first = await run({ drop: 0.3 })
    expect(first.lost.length).toBeGreaterThan(10)
    expect((await run({ drop: 0.3 })).lost).toEqual(first.lost)
    expect((await run({ drop: 0.3 }, 8)).lost).not.toEqual(first.lost)
    expect((await run({ drop: 0.3, duplicate: 0.5, reorder: 0.5 })).lost).toEqual(first.lost)
    expect(first.bytes).toEqual(inOrder.filter((_, n) => !first.lost.includes(n)))
  })

  it('repeats identical bytes', async () => {
    const { bytes } = await run({ duplicate: 0.4 })
    expect(bytes.length).toBeGreaterThan(100)
    expect(new Set(bytes)).toEqual(new Set(inOrder))
  })

  it('changes the order and loses nothing', async () => {
    const { bytes } = await run({ reorder: 0.4 })
    expect(bytes).not.toEqual(inOrder)
    expect(bytes.toSorted()).toEqual(inOrder.toSorted())
  })

  it('delays events, except during a flush', async () => {
    const { bytes } = await run({ delayMs: 3_600_000 })
    expect(bytes).toHaveLength(90)
  })

  it('delivers without a flush, in the order of the delays', async () => {
    const done = Promise.withResolvers<void>()
    const bytes: string[] = []
    const receive = (line: string): void => {
      if (bytes.push(line) === 30) done.resolve()
    }
    const faults = { ...NO_FAULTS, delayMs: 60 }
    const sink = callbackSink(receive)
    const queue = createLossyQueue({ sink, faults, random: createRandom(3), capacity: 100 })
    for (let n = 0; n < 30; n += 1) queue.push(event(n))
    await done.promise
    expect(bytes).not.toEqual(inOrder.slice(0, 30))
    await queue.stop()
  })

  it('drops events while 100 wait, and loses a batch that its sink refuses', async () => {
    const send = (): Promise<void> => Promise.reject(new Error('down'))
    const sink = { ...callbackSink(() => undefined), send }
    const random = createRandom(1)
    const queue = createLossyQueue({ sink, faults: NO_FAULTS, random, capacity: 100 })
    const accepted = Array.from({ length: 130 }, (_, n) => queue.push(event(n)))
    expect(accepted.filter(Boolean)).toHaveLength(100)
    await queue.stop()
    expect(queue.stats()).toMatchObject({ overflowed: 30, lost: 100, delivered: 0 })
  })
})

describe('the direct sink', () => {
  it('repeats a batch until it is answered 202', async () => {
    const received: string[] = []
    const answers = [503, 401, 202]
    const server = http.createServer((request, response) => {
      let body = ''
      request.on('data', (chunk: Buffer) => {
        body += chunk.toString()
      })
      request.on('end', () => {
        expect(request.url).toBe('/events')
        expect(request.headers.authorization).toBe('Bearer whsec_test')
        expect(request.headers['content-type']).toBe('application/x-ndjson')
        const status = answers.shift() ?? 202
        if (status === 202) received.push(...body.trimEnd().split('\n'))
        response.writeHead(status)
        response.end()
      })
    })
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    onTestFinished(() => {
      server.close()
    })
    const bound = server.address()
    const port = typeof bound === 'object' ? bound?.port : 0
    const sink = directSink({ url: `http://127.0.0.1:${port}/`, secret: 'whsec_test' })
    const events = Array.from({ length: 2500 }, (_, n) => event(n))
    await sink.send(events)
    await sink.flush()
    expect(received).toEqual(events.map(({ bytes }) => bytes))
    expect(answers).toEqual([])
    await sink.close()
  })

  it('refuses events above its capacity and gives up when it is closed', async () => {
    const sink = directSink({ url: 'http://127.0.0.1:1', secret: 's', capacity: 2, flushMs: 50 })
    await sink.send([event(1), event(2)])
    await expect(sink.send([event(3)])).rejects.toThrow('too many events wait')
    await sink.close()
  })
})

describe('the other sinks', () => {
  it('write one envelope per line to a file', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'signer-double-'))
    onTestFinished(() => rm(folder, { recursive: true }))
    const path = join(folder, 'events.ndjson')
    const sink = fileSink(path)
    await sink.send([event(1), event(2)])
    await sink.send([event(3)])
    expect(await readFile(path, 'utf8')).toBe('{"id":"1"}\n{"id":"2"}\n{"id":"3"}\n')
  })

  it('lose only the current batch when no broker answers', async () => {
    const sink = kafkaSink(['127.0.0.1:1'], 'livepeer-gateway-events')
    await expect(sink.send([event(1)])).rejects.toThrow('the batch is lost')
    await sink.close()
  })
})

describe('the statistics', () => {
  it('mark signed tickets that were never delivered', async () => {
    const webhook = await startWebhook()
    const double = await startDouble({
      webhook: { url: webhook.url },
      orchestrator: { pricePerUnit: 100n },
      faults: { drop: 0.5 },
      keepTickets: 15,
    })
    for (let i = 0; i < 20; i += 1) await double.pay({ type: 'fixed' })
    await double.flush()
    const { signed, tickets, ...counts } = double.stats()
    expect(counts).toMatchObject({ requests: 20, webhookCalls: 20, answers: { 200: 20 } })
    expect(tickets).toHaveLength(15)
    expect(signed).toMatchObject({ tickets: 20, fee: 2000n })
    expect(signed.queuedFee).toBe(BigInt(signed.queuedTickets) * 100n)
    const delivered = double.events.filter((bytes) => bytes.includes('create_signed_ticket'))
    expect(delivered).toHaveLength(signed.queuedTickets)
  })
})

describe('toChecksumAddress', () => {
  it.each([
    '0x5bE44e23041E93CDF9bCd5A0968524e104e38ae1',
    '0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed',
    '0xfB6916095ca1df60bB79Ce92cE3Ea74c37c5d359',
    '0x52908400098527886E0F7030069857D2E4169EE7',
  ])('%s keeps the case of EIP-55', (address) => {
    expect(toChecksumAddress(Buffer.from(address.slice(2), 'hex'))).toBe(address)
  })
})
