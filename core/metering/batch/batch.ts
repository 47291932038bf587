import { authId, isClientId } from '../../platform/ids.ts'
import type { RowBuffer } from '../../lib/copy-sql.ts'
import { getOrInsert } from '../../lib/maps.ts'
import { type Columns, createColumns } from './columns.ts'
import { digestOf } from '../events/event-id.ts'
import { parseEvent } from '../events/parse.ts'
import { writeTicket } from './ticket-row.ts'
import type { Problem, ResolveSubjects, SignedTicket, Subject } from '../types.ts'

/**
 * A batch before the database has seen it. A ticket leaves its row, encoded, and a few numbers; its texts are let go.
 */

/** Whoever pays, once for all of its tickets in a batch. */
export interface Payer {
  readonly clientId: string
  readonly externalUserId: string
  /** Their places in the batch. */
  readonly sessions: Map<string, number>
  /** Null until it is found, and for a client id that is nobody's. */
  subject: Subject | null
}

/** A signer session, once for all of its tickets in a batch. */
export interface Session {
  readonly payer: Payer
  readonly sessionId: string
  readonly manifestId: string
  readonly appName: string
  readonly feature: Feature
}

export interface Feature {
  readonly pipeline: string
  readonly modelId: string
}

export interface BatchProblem {
  readonly index: number
  readonly problem: Problem
}

/** Records sorted into what may become tickets, what cannot, and what is not meant to. */
export interface Batch {
  readonly tickets: Columns
  readonly sessions: readonly Session[]
  readonly features: readonly Feature[]
  readonly problems: readonly BatchProblem[]
  readonly ignored: readonly number[]
  readonly payers: ReadonlyMap<string, Payer>
}

/** Sorts at most `size` records, one by one; their rows go to `rows`. `at` bounds the signing times. */
export function createBatch(rows: RowBuffer, at: Date, size: number) {
  const columns = createColumns(size)
  const sessions: Session[] = []
  const features: Feature[] = []
  const problems: BatchProblem[] = []
  const ignored: number[] = []
  const payers = new Map<string, Payer>()
  const byClient = new Map<string, Map<string, Payer>>()
  const byPipeline = new Map<string, Map<string, number>>()

  function add(index: number, bytes: Buffer): void {
    const parsed = parseEvent(bytes, at)
    if (parsed.kind === 'ignored') ignored.push(index)
    else if (parsed.kind === 'problem') problems.push({ index, problem: parsed.problem })
    else addTicket(index, parsed.ticket, digestOf(bytes))
  }

  function addTicket(index: number, ticket: SignedTicket, digest: string): void {
    const { fee, billableSecs, signedAtMicros } = ticket
    const feature = featureOf(ticket)
    const from = rows.end()
    writeTicket(rows, ticket)
    columns.add({
      index,
      feature,
      fee,
      billableSecs,
      signedAtMicros,
      from,
      to: rows.end(),
      pixels: ticket.pixels,
      eventId: ticket.eventId,
      digest,
      session: sessionOf(ticket, feature),
      sequence: ticket.sequenceNumber,
    })
  }

  function sessionOf(ticket: SignedTicket, place: number): number {
    const payer = payerOf(ticket)
    const { sessionId, manifestId, appName } = ticket
    return getOrInsert(payer.sessions, sessionId, () => {
      const feature = features[place] ?? { pipeline: '', modelId: '' }
      return sessions.push({ payer, sessionId, manifestId, appName, feature }) - 1
    })
  }

  function payerOf({ clientId, externalUserId }: SignedTicket): Payer {
    const users = getOrInsert(byClient, clientId, () => new Map<string, Payer>())
    return getOrInsert(users, externalUserId, () => {
      const payer: Payer = { clientId, externalUserId, sessions: new Map(), subject: null }
      payers.set(authId(clientId, externalUserId), payer)
      return payer
    })
  }

  function featureOf({ pipeline, modelId }: SignedTicket): number {
    const models = getOrInsert(byPipeline, pipeline, () => new Map<string, number>())
    return getOrInsert(models, modelId, () => features.push({ pipeline, modelId }) - 1)
  }

  return {
    add,
    addTicket,
    read: (): Batch => ({ tickets: columns.read(), sessions, features, problems, ignored, payers }),
  }
}

/** Finds whom each payer's tickets belong to; users of known apps that are new are provisioned. */
export async function attribute(
  payers: ReadonlyMap<string, Payer>,
  resolve: ResolveSubjects,
): Promise<void> {
  // What does not look like one of our client ids names no app of ours: no need to ask.
  const wanted = [...payers.values()].filter(({ clientId }) => isClientId(clientId))
  if (wanted.length === 0) return
  const found = await resolve(
    wanted.map(({ clientId, externalUserId }) => ({ clientId, externalUserId })),
  )
  for (const [key, payer] of payers) payer.subject = found.get(key) ?? null
}
