import type { Batch, BatchProblem, Feature, Payer, Session } from './batch.ts'
import type { Columns } from './columns.ts'

/**
 * How a batch passes between threads: memory that is handed over, and what little there is besides. Copied object by
 * object it would cost more than the thread saves.
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
  readonly tickets: Columns
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

export function packBatch(batch: Batch, given: Pick<SortReply, 'bytes' | 'memory'>): SortReply {
  const { tickets, sessions, features, problems, ignored, payers } = batch
  const payerPlaces = new Map([...payers.values()].map((payer, place) => [payer, place]))
  const featurePlaces = new Map(features.map((feature, place) => [feature, place]))
  return {
    ...given,
    tickets,
    features,
    problems,
    ignored,
    payers: [...payers].map(([key, { clientId, externalUserId }]) => [
      key,
      clientId,
      externalUserId,
    ]),
    sessions: sessions.map(({ payer, feature, sessionId, manifestId, appName }) => ({
      payer: payerPlaces.get(payer) ?? 0,
      feature: featurePlaces.get(feature) ?? 0,
      sessionId,
      manifestId,
      appName,
    })),
  }
}

export function unpackBatch({ tickets, features, problems, ignored, ...reply }: SortReply): Batch {
  const payers = new Map(
    reply.payers.map(([key, clientId, externalUserId]): [string, Payer] => [
      key,
      { clientId, externalUserId, sessions: new Map(), subject: null },
    ]),
  )
  const byPlace = [...payers.values()]
  const sessions = reply.sessions.map(
    ({ payer: ofPayer, feature, sessionId, ...named }, place): Session => {
      const payer = at(byPlace, ofPayer)
      payer.sessions.set(sessionId, place)
      return { payer, sessionId, ...named, feature: at(features, feature) }
    },
  )
  return { tickets, sessions, features, problems, ignored, payers }
}

function at<T>(list: readonly T[], place: number): T {
  const item = list[place]
  if (item === undefined) throw new Error(`there is no item ${place}`)
  return item
}
