import type { UserCharge } from '../allowances/charge.ts'
import type { AppId, UserId } from '../platform/ids.ts'
import type { EthRate, UsdAttos, Wei } from '../lib/money.ts'
import type { Db } from '../lib/sql.ts'

/**
 * Invariants of metering:
 * 1. Every record taken off a stream is one of the four outcomes; their counters add up to the offsets.
 * 2. An envelope id becomes at most one ticket, whoever delivers it and how often.
 * 3. A ticket's fee is the signer's wei, exactly; its cost is fixed once, from the newest rate at or before its time.
 * 4. usage_hourly and the ledger change in the transaction that writes or prices the tickets they sum.
 */
export const outcomes = ['ticket', 'duplicate', 'ignored', 'quarantined'] as const
export type Outcome = (typeof outcomes)[number]
export type Counts = Readonly<Record<Outcome, number>>

/** Why an event could not become a ticket. */
export const quarantineReasons = [
  'too_large',
  'not_utf8',
  'not_json',
  'too_deep',
  'duplicate_member',
  'not_an_object',
  'no_type',
  'no_id',
  'invalid_id',
  'invalid_data',
  'invalid_fee',
  'fee_out_of_range',
  'invalid_time',
  'time_out_of_range',
  'invalid_session',
  'invalid_sequence',
  'invalid_number',
  'unattributed',
  'unknown_client',
  'invalid_subject',
  'same_id_other_bytes',
  'rejected_by_database',
] as const
export type QuarantineReason = (typeof quarantineReasons)[number]

/** One message as a stream delivered it. `offset` is null where the stream has none (direct mode). */
export interface StreamRecord {
  readonly source: string
  readonly partition: number
  readonly offset: bigint | null
  readonly bytes: Buffer
  /** When the stream got it, in milliseconds: what the lag is measured from. */
  readonly producedAtMs: number
}

/** Where events come from. The collector opens it again whenever a session fails. */
export interface EventSource {
  readonly name: string
  open(): Promise<EventSession>
}

export interface EventSession {
  /** The next records, at least one, in order for each partition. Throws when the stream fails, and once closed. */
  next(): Promise<readonly StreamRecord[]>
  /** These are in the database now. Best effort: the positions that count are in the database, too. */
  committed(records: readonly StreamRecord[]): void
  close(): Promise<void>
}

/** A `create_signed_ticket` event (signer-contract 5.4), checked and exact. */
export interface SignedTicket {
  readonly eventId: string
  readonly clientId: string
  readonly externalUserId: string
  /** ISO 8601 UTC with microseconds, the resolution of timestamptz. */
  readonly signedAt: string
  readonly signedAtMs: number
  readonly signedAtMicros: number
  readonly sessionId: string
  readonly sequenceNumber: string
  readonly requestId: string
  readonly manifestId: string
  readonly appName: string
  readonly pipeline: string
  readonly modelId: string
  readonly fee: Wei
  readonly billableSecs: string
  readonly pixels: string
  readonly numTickets: number
  readonly orchAddress: string
  readonly orchUrl: string
  readonly emittedAtMs: number | null
  /** What the signer says it cost in USD, exactly; nothing is charged by it. */
  readonly statedUsd: string | null
}

/** What is known of an event that cannot be a ticket. */
export interface Problem {
  readonly reason: QuarantineReason
  readonly detail: string
  readonly eventId: string | null
  readonly authId: string | null
  readonly fee: Wei | null
}

export type ParsedEvent =
  | { readonly kind: 'ticket'; readonly ticket: SignedTicket }
  | { readonly kind: 'ignored' }
  | { readonly kind: 'problem'; readonly problem: Problem }

export interface Subject {
  readonly appId: AppId
  readonly userId: UserId
}

/** One observation of the price of one ETH. */
export interface Rate {
  readonly id: bigint
  readonly usdAttosPerEth: EthRate
  readonly source: string
  readonly observedAt: Date
}

/** What a ticket costs, and by which rate. */
export interface Priced {
  readonly rateId: bigint
  readonly cost: UsdAttos
}

export interface NewRate {
  readonly usdAttosPerEth: EthRate
  readonly source: string
}

/** The ledger: inside the caller's transaction; returns the users that have nothing left. */
export type Charge = (
  db: Db,
  charges: readonly UserCharge[],
  options: { id: string; at: Date },
) => Promise<UserId[]>

/** Users of known apps by auth id, provisioned when new; a subject of an unknown app is absent. */
export type ResolveSubjects = (
  subjects: readonly { clientId: string; externalUserId: string }[],
) => Promise<ReadonlyMap<string, Subject>>
