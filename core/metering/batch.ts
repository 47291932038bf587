import { hash } from 'node:crypto'
import { authId, isClientId } from '../ids.ts'
import type { RowBuffer } from '../lib/copy-sql.ts'
import type { Wei } from '../lib/money.ts'
import { within } from '../lib/maps.ts'
import { parseEvent } from './envelope.ts'
import { writeTicket } from './ticket-row.ts'
import type { Problem, ResolveSubjects, SignedTicket, Subject } from './types.ts'

/**
 * A batch before the database has seen it. A ticket leaves its row, encoded, and a small entry; its texts are let go,
 * as nothing costs the collector more than what survives a batch (measured).
 */

/** Whoever pays, once for all of its tickets in a batch. */
export interface Payer {
  readonly clientId: string
  readonly externalUserId: string
  readonly sessions: Map<string, Session>
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

export interface Feature { readonly pipeline: string; readonly modelId: string }

export interface Entry {
  /** Of its record. */
  readonly index: number
  /** What it is known by in `envelopes`, and what tells its bytes from others: 16 bytes each, a character a byte. */
  readonly key: string
  readonly digest: string
  readonly session: Session
  readonly feature: Feature
  readonly sequence: bigint
  readonly fee: Wei
  readonly billableSecs: string
  readonly pixels: string
  readonly signedAtMs: number
  readonly signedAtMicros: number
  /** Where its row stands. */
  readonly from: number
  readonly to: number
}

export interface BatchProblem {
  readonly index: number
  readonly problem: Problem
}

/** Records sorted into what may become tickets, what cannot, and what is not meant to. */
export interface Batch {
  readonly entries: readonly Entry[]
  readonly problems: readonly BatchProblem[]
  readonly ignored: readonly number[]
  readonly payers: ReadonlyMap<string, Payer>
}

/** Sorts records one by one; their rows go to `rows`. `at` bounds the signing times. */
export function createBatch(rows: RowBuffer, at: Date) {
  const entries: Entry[] = []
  const problems: BatchProblem[] = []
  const ignored: number[] = []
  const payers = new Map<string, Payer>()
  const byClient = new Map<string, Map<string, Payer>>()
  const features = new Map<string, Map<string, Feature>>()

  /** `plain`: the bytes have no escape and no control character. */
  function add(index: number, bytes: Buffer, plain?: boolean): void {
    const parsed = parseEvent(bytes, at, plain)
    if (parsed.kind === 'ignored') ignored.push(index)
    else if (parsed.kind === 'problem') problems.push({ index, problem: parsed.problem })
    else addTicket(index, parsed.ticket, digestOf(bytes))
  }

  const addTicket = (index: number, ticket: SignedTicket, digest: string): void =>
    void entries.push(entryOf(index, ticket, digest))

  function entryOf(index: number, ticket: SignedTicket, digest: string): Entry {
    const { fee, billableSecs, pixels, signedAtMs, signedAtMicros } = ticket
    const feature = featureOf(ticket)
    const from = rows.end()
    writeTicket(rows, ticket)
    return {
      index, feature, fee, billableSecs, pixels, signedAtMs, signedAtMicros, from, to: rows.end(),
      key: keyOf(ticket.eventId), digest, session: sessionOf(ticket, feature),
      sequence: BigInt(ticket.sequenceNumber),
    }
  }

  function sessionOf(ticket: SignedTicket, feature: Feature): Session {
    const payer = payerOf(ticket)
    const { sessionId, manifestId, appName } = ticket
    return within(payer.sessions, sessionId, () => ({ payer, sessionId, manifestId, appName, feature }))
  }

  function payerOf({ clientId, externalUserId }: SignedTicket): Payer {
    const users = within(byClient, clientId, () => new Map<string, Payer>())
    return within(users, externalUserId, () => {
      const payer: Payer = { clientId, externalUserId, sessions: new Map(), subject: null }
      payers.set(authId(clientId, externalUserId), payer)
      return payer
    })
  }

  function featureOf({ pipeline, modelId }: SignedTicket): Feature {
    const models = within(features, pipeline, () => new Map<string, Feature>())
    return within(models, modelId, () => ({ pipeline, modelId }))
  }

  return { add, addTicket, read: (): Batch => ({ entries, problems, ignored, payers }) }
}

/** Finds whom each payer's tickets belong to; users of known apps that are new are provisioned. */
export async function attribute(payers: ReadonlyMap<string, Payer>, resolve: ResolveSubjects): Promise<void> {
  // What does not look like one of our client ids names no app of ours: no need to ask.
  const wanted = [...payers.values()].filter(({ clientId }) => isClientId(clientId))
  if (wanted.length === 0) return
  const found = await resolve(wanted.map(({ clientId, externalUserId }) => ({ clientId, externalUserId })))
  for (const [key, payer] of payers) payer.subject = found.get(key) ?? null
}

const digestOf = (bytes: Buffer | string): string => hash('sha256', bytes, 'binary').slice(0, 16)

/** The digest of an entry from the SHA-256 of its bytes in hexadecimal. */
export const halfDigest = (hex: string): string => Buffer.from(hex.slice(0, 32), 'hex').toString('latin1')

const canonicalUuid = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/

/** The signer's ids are UUIDs and stand for themselves; any other id is hashed, one that differs only in case too. */
export function keyOf(id: string): string {
  if (!canonicalUuid.test(id)) return digestOf(id)
  return String.fromCharCode(
    byteAt(id, 0), byteAt(id, 2), byteAt(id, 4), byteAt(id, 6), byteAt(id, 9), byteAt(id, 11), byteAt(id, 14), byteAt(id, 16),
    byteAt(id, 19), byteAt(id, 21), byteAt(id, 24), byteAt(id, 26), byteAt(id, 28), byteAt(id, 30), byteAt(id, 32), byteAt(id, 34))
}

const byteAt = (hex: string, at: number): number => (nibble(hex.charCodeAt(at)) << 4) | nibble(hex.charCodeAt(at + 1))
const nibble = (code: number): number => (code < 58 ? code - 48 : code - 87)
