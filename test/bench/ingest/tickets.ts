import { randomBytes, randomUUID } from 'node:crypto'
import type { StreamRecord } from '../../../core/metering/events/record.ts'

const source = 'kafka:bench:0'
const partitions = 4
const callsPerSession = 200
const weiPerSecond = 12_000

interface Session {
  readonly id: string
  readonly manifest: string
  calls: number
  last: string
  lastMs: number
}

/** Returns the externalUserId of the user with this number. */
export const userName = (user: number): string => `user-${user}`

interface TopicOptions {
  readonly clientId: string
  /** Returns the user of the nth event. */
  readonly pick: (n: number) => number
  /** Returns fields of the nth event that replace the usual ones. */
  readonly more?: (n: number) => object
}

/**
 * Generates `create_signed_ticket` events of live sessions as the signer writes them
 * (docs/signer-events.md, "Signed ticket").
 */
export function createTopic({ clientId, pick, more = () => ({}) }: TopicOptions) {
  const sessions = new Map<number, Session>()
  let recordCount = 0

  function sessionOf(user: number, now: { text: string; ms: number }): Session {
    const open = sessions.get(user)
    if (open && open.calls < callsPerSession) return open
    const started = { id: hex(4), manifest: hex(4), calls: 0, last: now.text, lastMs: now.ms }
    sessions.set(user, started)
    return started
  }

  function event(user: number): Buffer {
    const ms = Date.now()
    const text = new Date(ms)
      .toISOString()
      .replace('Z', `${String(recordCount % 1_000_000).padStart(6, '0')}Z`)
    const session = sessionOf(user, { text, ms })
    const seconds = session.calls === 0 ? 10 : 4.5 + (recordCount % 1000) / 1000
    const data = {
      app: 'acme/echo',
      auth_id: `${clientId}:${userName(user)}`,
      billable_secs: seconds,
      computed_fee: String(Math.ceil(seconds) * weiPerSecond),
      cost: '12000.0000000000',
      current_time: text,
      current_time_unix: ms,
      manifest_id: session.manifest,
      num_tickets: 1,
      orch_address: '0x5bE44e23041E93CDF9bCd5A0968524e104e38ae1',
      orch_url: 'https://orch.example:8935',
      pipeline: 'live',
      pixels: 0,
      pm_session_id: '0x2b1f6c0e5d7a49a8b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d5e6f7081920',
      previous_time: session.last,
      previous_time_unix: session.lastMs,
      request_id: hex(4),
      sequence_number: session.calls,
      session_balance: '49999999880000',
      session_id: session.id,
      session_status: session.calls === 0 ? 'new' : 'continuing',
      ...more(recordCount),
    }
    Object.assign(session, { calls: session.calls + 1, last: text, lastMs: ms })
    return Buffer.from(
      JSON.stringify({
        id: randomUUID(),
        type: 'create_signed_ticket',
        timestamp: String(ms + 8),
        gateway: '',
        data,
      }),
    )
  }

  function record(): StreamRecord {
    const place = {
      partition: recordCount % partitions,
      offset: BigInt(Math.floor(recordCount / partitions)),
    }
    const bytes = event(pick(recordCount))
    recordCount++
    return { source, ...place, bytes, producedAtMs: Date.now() }
  }

  /**
   * Yields the next `count` records in batches of at most `size`. Each batch is made when it is
   * read.
   */
  function* batches(count: number, size: number): Generator<StreamRecord[]> {
    for (let left = count; left > 0; left -= size) {
      yield Array.from({ length: Math.min(left, size) }, record)
    }
  }

  return { batches }
}

export type Topic = ReturnType<typeof createTopic>

const hex = (bytes: number): string => randomBytes(bytes).toString('hex')
