import { afterEach, describe, expect, it } from 'vitest'
import { usualLimits } from '../../../../core/metering/events/parse.ts'
import { silentLog } from '../../../../core/lib/log.ts'
import {
  readBillionths,
  readDigest,
  readFeature,
  readFee,
  rowStart,
  readIndex,
  readKey,
  readMicros,
  pixelsAsNumber,
  readSequence,
  readSession,
  rowEnd,
} from '../../../../core/metering/batch/parsed-batch.ts'
import { type EncodedBatch, createParsePool } from '../../../../core/metering/batch/parse-pool.ts'
import type { StreamRecord } from '../../../../core/metering/ingest/position-store.ts'
import { envelope } from '../harness.ts'

const at = new Date('2026-09-14T10:20:00Z')
const stops: (() => Promise<void>)[] = []
afterEach(async () => {
  for (const stop of stops.splice(0)) await stop()
})

function parsePool(threads: boolean) {
  const pool = createParsePool({ log: silentLog(), threads, limits: usualLimits })
  stops.push(pool.stop)
  return pool
}

const garbage = [
  '',
  '{',
  '[]',
  '{"type":"discovery_results","data":[]}',
  '{"id":"x","type":"create_signed_ticket"}',
]

const records = (count: number): StreamRecord[] =>
  Array.from({ length: count }, (_, i) => ({
    source: 'test',
    partition: 0,
    offset: BigInt(i),
    producedAtMs: 0,
    bytes:
      i % 10 === 9
        ? Buffer.from(garbage[Math.floor(i / 10) % garbage.length] ?? '')
        : envelope(
            {
              auth_id: i % 7 === 0 ? '' : `app_0123456789abcdef01234567:user-${i % 13}`,
              session_id: `s${i % 29}`,
              sequence_number: i,
              computed_fee: String(2n ** BigInt(i % 66)),
              billable_secs: i % 3 === 0 ? 5.123456789 : -i,
              pixels: i * 1_000,
              pipeline: i % 2 === 0 ? 'live' : `live-video-to-video:модель "${i % 3}"`,
              manifest_id: `m\n${i % 5}`,
            },
            i % 4 === 0 ? { id: `not a uuid ${i}` } : {},
          ),
  }))

/** Returns the contents of a batch, with payers and sessions as plain values. */
function plain({ batch, rows }: EncodedBatch) {
  const { tickets, sessions, features, problems, ignored, payers } = batch
  return {
    problems,
    ignored,
    features,
    oversized: [...tickets.oversized],
    payers: [...payers].map(([key, { clientId, externalUserId, sessions: of }]) => [
      key,
      clientId,
      externalUserId,
      [...of],
    ]),
    sessions: sessions.map(({ payer, ...session }, place) => ({
      ...session,
      payer: payer.externalUserId,
      known: payer.sessions.get(session.sessionId) === place,
    })),
    tickets: Array.from({ length: tickets.count }, (_, place) => ({
      index: readIndex(tickets, place),
      session: readSession(tickets, place),
      feature: readFeature(tickets, place),
      micros: readMicros(tickets, place),
      billionths: readBillionths(tickets, place),
      pixels: pixelsAsNumber(tickets, place),
      fee: readFee(tickets, place),
      sequence: readSequence(tickets, place),
      key: readKey(tickets, place),
      digest: readDigest(tickets, place),
      row: rows.subarray(rowStart(tickets, place), rowEnd(tickets, place)).toString('hex'),
    })),
  }
}

describe('parsing a batch', () => {
  it('has the same result in a separate thread', async () => {
    const batch = records(1_500)
    const here = plain(await parsePool(false).parse(batch, at))
    expect(here.tickets.length).toBeGreaterThan(1_000)
    expect([here.problems.length, here.ignored.length].every((length) => length > 20)).toBe(true)
    const threaded = parsePool(true)
    const [first, second] = await Promise.all([
      threaded.parse(batch, at),
      threaded.parse(batch.toReversed(), at),
    ])
    expect(plain(first)).toEqual(here)
    expect(plain(second)).toEqual(plain(await parsePool(false).parse(batch.toReversed(), at)))
    first.release()
    second.release()
    expect(plain(await threaded.parse(batch, at))).toEqual(here)
  })

  it('continues in this thread when the other one ends', async () => {
    const batch = records(5_000)
    const threaded = parsePool(true)
    const parsed = threaded.parse(batch, at)
    await threaded.stop()
    expect((await parsed).batch.tickets.count).toBeGreaterThan(3_000)
    expect((await threaded.parse(batch.slice(0, 1_200), at)).batch.tickets.count).toBeGreaterThan(
      700,
    )
  })
})
