import { wei } from '../lib/money.ts'
import type { Batch, BatchProblem, Entry, Feature, Payer, Session } from './batch.ts'

/**
 * How a batch passes between threads: memory that is handed over, and for each column of its entries one array or one
 * text. Copied object by object it would cost more than the thread saves.
 */
export interface SortRequest {
  readonly bytes: ArrayBuffer
  /** Where each record ends in `bytes`. */
  readonly ends: Float64Array<ArrayBuffer>
  readonly at: Date
  /** Memory for the rows, of an earlier batch. */
  readonly memory: ArrayBuffer | null
}

export interface SortReply {
  /** The memory of the request, to be used again. */
  readonly bytes: ArrayBuffer
  readonly memory: ArrayBuffer
  readonly numbers: Float64Array<ArrayBuffer>
  readonly sequences: BigInt64Array<ArrayBuffer>
  /** 16 characters an entry. */
  readonly keys: string
  readonly digests: string
  /** A line an entry. */
  readonly fees: string
  readonly billableSecs: string
  readonly pixels: string
  readonly features: readonly Feature[]
  readonly payers: readonly (readonly [key: string, clientId: string, externalUserId: string])[]
  readonly sessions: readonly SessionText[]
  readonly problems: readonly BatchProblem[]
  readonly ignored: readonly number[]
}

interface SessionText {
  readonly payer: number
  readonly feature: number
  readonly sessionId: string
  readonly manifestId: string
  readonly appName: string
}

/** index, feature, session, from, to, signedAtMs, signedAtMicros */
const width = 7
const keyLength = 16

export function packBatch({ entries, problems, ignored, payers }: Batch, given: Pick<SortReply, 'bytes' | 'memory'>): SortReply {
  const payerPlaces = places(payers.values())
  const sessionPlaces = places([...payers.values()].flatMap((payer) => [...payer.sessions.values()]))
  const featurePlaces = places([...sessionPlaces.keys()].map(({ feature }) => feature), entries.map(({ feature }) => feature))
  const numbers = new Float64Array(entries.length * width)
  let at = 0
  for (const { index, feature, session, from, to, signedAtMs, signedAtMicros } of entries) {
    numbers[at++] = index
    numbers[at++] = featurePlaces.get(feature) ?? 0
    numbers[at++] = sessionPlaces.get(session) ?? 0
    numbers[at++] = from
    numbers[at++] = to
    numbers[at++] = signedAtMs
    numbers[at++] = signedAtMicros
  }
  return {
    ...given, numbers, problems, ignored,
    sequences: BigInt64Array.from(entries, (entry) => entry.sequence),
    keys: entries.map((entry) => entry.key).join(''), digests: entries.map((entry) => entry.digest).join(''),
    fees: entries.map((entry) => entry.fee).join('\n'), billableSecs: entries.map((entry) => entry.billableSecs).join('\n'),
    pixels: entries.map((entry) => entry.pixels).join('\n'),
    features: [...featurePlaces.keys()],
    payers: [...payers].map(([key, { clientId, externalUserId }]) => [key, clientId, externalUserId]),
    sessions: [...sessionPlaces.keys()].map(({ payer, feature, sessionId, manifestId, appName }) => ({
      payer: payerPlaces.get(payer) ?? 0, feature: featurePlaces.get(feature) ?? 0, sessionId, manifestId, appName,
    })),
  }
}

function places<T>(...lists: readonly Iterable<T>[]): Map<T, number> {
  const found = new Map<T, number>()
  for (const list of lists) {
    for (const item of list) {
      if (!found.has(item)) found.set(item, found.size)
    }
  }
  return found
}

export function unpackBatch(reply: SortReply): Batch {
  const { numbers, sequences, features, problems, ignored } = reply
  const payers = new Map(reply.payers.map(([key, clientId, externalUserId]): [string, Payer] =>
    [key, { clientId, externalUserId, sessions: new Map(), subject: null }]))
  const sessions = sessionsOf(reply, [...payers.values()])
  const [fees, billableSecs, pixels] = [reply.fees.split('\n'), reply.billableSecs.split('\n'), reply.pixels.split('\n')]
  const number = (i: number, column: number): number => numbers[i * width + column] ?? 0
  const entries = Array.from(sequences, (sequence, i): Entry => ({
    index: number(i, 0), feature: at(features, number(i, 1)), session: at(sessions, number(i, 2)), sequence,
    from: number(i, 3), to: number(i, 4), signedAtMs: number(i, 5), signedAtMicros: number(i, 6),
    key: reply.keys.slice(i * keyLength, (i + 1) * keyLength),
    digest: reply.digests.slice(i * keyLength, (i + 1) * keyLength),
    fee: wei(BigInt(at(fees, i))), billableSecs: at(billableSecs, i), pixels: at(pixels, i),
  }))
  return { entries, problems, ignored, payers }
}

function sessionsOf({ sessions, features }: SortReply, payers: readonly Payer[]): Session[] {
  return sessions.map(({ payer: place, feature, sessionId, manifestId, appName }) => {
    const payer = at(payers, place)
    const session = { payer, sessionId, manifestId, appName, feature: at(features, feature) }
    payer.sessions.set(sessionId, session)
    return session
  })
}

function at<T>(list: readonly T[], place: number): T {
  const item = list[place]
  if (item === undefined) throw new Error(`there is no item ${place}`)
  return item
}
