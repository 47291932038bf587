import { hash } from 'node:crypto'
import { authId, isClientId } from '../ids.ts'
import { parseEvent } from './envelope.ts'
import type { Envelope } from './store.ts'
import type { Problem, ResolveSubjects, SignedTicket, Subject } from './types.ts'

/** What a batch is, before the database has seen it: parsed and attributed. */

export interface Candidate {
  readonly index: number
  readonly digest: string
  readonly envelope: Envelope
  readonly ticket: SignedTicket
  readonly subject: Subject
}

export interface BatchProblem {
  readonly index: number
  readonly digest: string
  readonly problem: Problem
}

export interface SortedBatch {
  readonly candidates: readonly Candidate[]
  readonly problems: readonly BatchProblem[]
  readonly ignored: readonly number[]
}

export type Examined =
  | { readonly kind: 'ticket'; readonly digest: string; readonly ticket: SignedTicket }
  | { readonly kind: 'problem'; readonly digest: string; readonly problem: Problem }
  | { readonly kind: 'ignored' }

export function examine(bytes: Buffer, now: Date): Examined {
  const parsed = parseEvent(bytes, now)
  return parsed.kind === 'ignored' ? parsed : { ...parsed, digest: hash('sha256', bytes, 'hex') }
}

export const subjectKey = (ticket: SignedTicket): string => authId(ticket.clientId, ticket.externalUserId)

/** Finds whom each ticket belongs to; users of known apps that are new are provisioned. */
export async function attribute(
  tickets: readonly SignedTicket[], resolve: ResolveSubjects,
): Promise<ReadonlyMap<string, Subject>> {
  const wanted = new Map<string, { clientId: string; externalUserId: string }>()
  for (const ticket of tickets) {
    // What does not look like one of our client ids names no app of ours: no need to ask.
    if (isClientId(ticket.clientId)) wanted.set(subjectKey(ticket), ticket)
  }
  if (wanted.size === 0) return new Map()
  return resolve([...wanted.values()].map(({ clientId, externalUserId }) => ({ clientId, externalUserId })))
}

/** A problem with a ticket that parsed: its identity and its amount are known. */
export const ticketProblem = (ticket: SignedTicket, of: Pick<Problem, 'reason' | 'detail'>): Problem =>
  ({ ...of, eventId: ticket.eventId, authId: subjectKey(ticket), fee: ticket.fee })

/** Sorts records into what may become tickets, what cannot, and what is not meant to. */
export function sortBatch(
  records: readonly { index: number; examined: Examined }[], subjects: ReadonlyMap<string, Subject>,
): SortedBatch {
  const candidates: Candidate[] = []
  const problems: BatchProblem[] = []
  const ignored: number[] = []
  for (const { index, examined } of records) {
    if (examined.kind === 'ignored') ignored.push(index)
    else if (examined.kind === 'problem') problems.push({ index, digest: examined.digest, problem: examined.problem })
    else {
      const { digest, ticket } = examined
      const subject = subjects.get(subjectKey(ticket))
      if (subject) candidates.push({ index, digest, ticket, subject, envelope: envelopeOf(ticket.eventId, digest) })
      else problems.push({ index, digest, problem: ticketProblem(ticket, unknownClient) })
    }
  }
  return { candidates, problems, ignored }
}

const canonicalUuid = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/

/** The signer's ids are UUIDs and stand for themselves; any other id is hashed, one that differs only in case too. */
function envelopeOf(eventId: string, digest: string): Envelope {
  const key = canonicalUuid.test(eventId) ? eventId : uuidText(hash('sha256', eventId, 'hex'))
  return { key, digest: uuidText(digest) }
}

const uuidText = (hex: string): string =>
  `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20, 32)}`

const unknownClient = { reason: 'unknown_client', detail: 'no app has this client id' } as const

export const sameIdOtherBytes = {
  reason: 'same_id_other_bytes', detail: 'another event came under this id before; that one stands',
} as const
