import { type Db, many, maybeOne, one, sql } from '../../lib/sql.ts'
import { lockInApps } from '../../shared/database/app-groups.ts'
import { type AppId, type UserKey, appId, userId } from '../../shared/ids.ts'
import { accountColumn } from '../payments/customer-store.ts'
import {
  type PaymentProcessor,
  type Plane,
  type ProcessorAccount,
  type UsdCents,
  usdCents,
} from '../processor/port.ts'

/** Writes payment_attempts: tries to take money from cards without their users. */

export type AttemptPurpose = 'invoice' | 'plan'

/** `started`: the processor has not decided, or its answer is not known. */
export type AttemptState = 'started' | 'succeeded' | 'failed'

export interface StoredAttempt extends UserKey {
  readonly id: string
  readonly purpose: AttemptPurpose
  /** The collection or the plan order that is paid. */
  readonly subjectId: string
  readonly amount: UsdCents
  /** The platform's share of the amount. */
  readonly fee: UsdCents
  readonly description: string
  readonly at: ProcessorAccount
  readonly processor: PaymentProcessor['kind']
  /** Null if the user has no card that can be charged. */
  readonly card: { readonly customerId: string; readonly cardId: string } | null
  readonly state: AttemptState
  readonly processorId: string | null
  readonly failure: string | null
  readonly createdAt: Date
  readonly checkAt: Date
  /** Calls that tried to refund its surplus. */
  readonly refundCalls: number
}

interface AttemptRow {
  app_id: string
  user_id: string
  id: string
  purpose: AttemptPurpose
  subject_id: string
  amount_cents: bigint
  fee_cents: bigint
  description: string
  plane: Plane
  account_id: string
  processor: PaymentProcessor['kind']
  customer_id: string | null
  card_id: string | null
  state: AttemptState
  processor_id: string | null
  failure: string | null
  created_at: Date
  check_at: Date
  refund_calls: number
}

const columns = `app_id, user_id, id, purpose, subject_id, amount_cents, fee_cents, description, plane, account_id, processor,
  customer_id, card_id, state, processor_id, failure, created_at, check_at, refund_calls`

const fromRow = (row: AttemptRow): StoredAttempt => ({
  appId: appId(row.app_id),
  userId: userId(row.user_id),
  id: row.id,
  purpose: row.purpose,
  subjectId: row.subject_id,
  amount: usdCents(row.amount_cents),
  fee: usdCents(row.fee_cents),
  description: row.description,
  at: { plane: row.plane, account: row.account_id === '' ? null : row.account_id },
  processor: row.processor,
  card:
    row.customer_id === null || row.card_id === null
      ? null
      : { customerId: row.customer_id, cardId: row.card_id },
  state: row.state,
  processorId: row.processor_id,
  failure: row.failure,
  createdAt: row.created_at,
  checkAt: row.check_at,
  refundCalls: row.refund_calls,
})

/** The failure of an attempt whose payment came when the subject needed no money any more. */
export const surplus = 'paid_twice'

type AttemptKey = Pick<StoredAttempt, 'appId' | 'id'>

/**
 * Stores an attempt before the processor is called. Returns false if another attempt for the
 * subject is undecided or has succeeded.
 */
export async function insertAttempt(db: Db, attempt: StoredAttempt): Promise<boolean> {
  const { at, card, state, createdAt } = attempt
  const { rowCount } = await db.query(sql`
    insert into payment_attempts (app_id, user_id, id, purpose, subject_id, amount_cents, fee_cents, description, plane,
                                  account_id, processor, customer_id, card_id, state, failure, created_at, check_at, ended_at)
    values (${attempt.appId}, ${attempt.userId}, ${attempt.id}, ${attempt.purpose}, ${attempt.subjectId}, ${attempt.amount},
            ${attempt.fee}, ${attempt.description}, ${at.plane}, ${accountColumn(at)}, ${attempt.processor},
            ${card?.customerId ?? null}, ${card?.cardId ?? null}, ${state}, ${attempt.failure}, ${createdAt},
            ${attempt.checkAt}, ${state === 'started' ? null : createdAt})
    on conflict do nothing`)
  return rowCount === 1
}

/** Returns the attempt for a subject that is undecided or has succeeded. */
export async function findOpenOrPaid(
  db: Db,
  { appId: app, purpose, subjectId }: Pick<StoredAttempt, 'appId' | 'purpose' | 'subjectId'>,
): Promise<StoredAttempt | null> {
  const row = await maybeOne<AttemptRow>(db, {
    text: `
    select ${columns}
    from payment_attempts
    where app_id = $1 and purpose = $2 and subject_id = $3 and state in ('started', 'succeeded')`,
    values: [app, purpose, subjectId],
  })
  return row && fromRow(row)
}

/** Returns an attempt, locked until the transaction ends; null for an unknown one. */
export async function lockAttempt(
  db: Db,
  { appId: app, id }: AttemptKey,
): Promise<StoredAttempt | null> {
  const row = await maybeOne<AttemptRow>(db, {
    text: `select ${columns} from payment_attempts where app_id = $1 and id = $2 for update`,
    values: [app, id],
  })
  return row && fromRow(row)
}

/** Postpones the check of an undecided attempt, and keeps the processor's id of its payment. */
export async function saveProcessing(
  db: Db,
  { appId: app, id }: AttemptKey,
  { processorId, checkAt }: { readonly processorId: string; readonly checkAt: Date },
): Promise<void> {
  await db.query(sql`
    update payment_attempts
    set processor_id = ${processorId}, check_at = ${checkAt}
    where app_id = ${app} and id = ${id} and state = 'started'`)
}

/**
 * Ends a locked attempt as paid, also one that was given up. Returns false if another attempt for
 * its subject is undecided or has succeeded.
 */
export async function saveSucceeded(
  db: Db,
  { appId: app, id, purpose, subjectId }: StoredAttempt,
  { processorId, at }: { readonly processorId: string; readonly at: Date },
): Promise<boolean> {
  const { rowCount } = await db.query(sql`
    update payment_attempts
    set state = 'succeeded', processor_id = ${processorId}, failure = null, ended_at = ${at}
    where app_id = ${app} and id = ${id}
      and not exists (
        select from payment_attempts
        where app_id = ${app} and purpose = ${purpose} and subject_id = ${subjectId} and id <> ${id}
          and state in ('started', 'succeeded'))`)
  return rowCount === 1
}

export interface AttemptFailure {
  readonly failure: string
  readonly processorId: string | null
  readonly at: Date
}

/** Ends a locked attempt as failed. */
export async function saveFailed(
  db: Db,
  { appId: app, id }: AttemptKey,
  { failure, processorId, at }: AttemptFailure,
): Promise<void> {
  await db.query(sql`
    update payment_attempts
    set state = 'failed', failure = ${failure}, processor_id = coalesce(${processorId}, processor_id), ended_at = ${at}
    where app_id = ${app} and id = ${id}`)
}

/**
 * Ends a locked attempt whose payment is not needed, because its subject needs no money any more.
 * The payment waits to be refunded.
 */
export async function saveSurplus(
  db: Db,
  { appId: app, id }: AttemptKey,
  { processorId, at }: { readonly processorId: string; readonly at: Date },
): Promise<void> {
  await db.query(sql`
    update payment_attempts
    set state = 'failed', failure = ${surplus}, processor_id = ${processorId}, ended_at = coalesce(ended_at, ${at}),
        surplus_at = coalesce(surplus_at, ${at}), check_at = ${at}, refund_calls = refund_calls + 1
    where app_id = ${app} and id = ${id}`)
}

/** What a claimed attempt needs: `check` if it is undecided, `refund` if its payment is a surplus. */
export type AttemptTask = 'check' | 'refund'

const waiting: Readonly<Record<AttemptTask, string>> = {
  check: `state = 'started'`,
  refund: 'surplus_at is not null',
}

type Processor = StoredAttempt['processor']

export interface AttemptClaim {
  readonly task: AttemptTask
  /** Attempts of any other processor stay as they are. */
  readonly processor: Processor
  readonly at: Date
  readonly until: Date
  readonly limit: number
}

/**
 * Claims a processor's attempts that are due, oldest first, and postpones their next turn to
 * `until`. Counts calls that refund. Skips those that another core has claimed.
 */
export async function claimDue(db: Db, claim: AttemptClaim): Promise<StoredAttempt[]> {
  const { task, processor, at, until, limit } = claim
  const rows = await lockInApps(db, {
    app: null,
    limit,
    findApps: () => listDueApps(db, claim),
    lock: (app, most) =>
      many<AttemptRow>(db, {
        text: `
    update payment_attempts
    set check_at = $2, refund_calls = refund_calls + $5
    where ($6::uuid is null or app_id = $6) and (app_id, id) in (
      select app_id, id from payment_attempts
      where ($6::uuid is null or app_id = $6) and ${waiting[task]} and processor = $4 and check_at <= $1
      order by check_at limit $3 for update skip locked)
    returning ${columns}`,
        values: [at, until, most, processor, task === 'refund' ? 1 : 0, app],
      }),
  })
  return rows.map(fromRow)
}

async function listDueApps(db: Db, { task, processor, at, limit }: AttemptClaim): Promise<AppId[]> {
  const rows = await many<{ app_id: string }>(db, {
    text: `
    select distinct app_id
    from (
      select app_id from payment_attempts where ${waiting[task]} and processor = $3 and check_at <= $1
      order by check_at limit $2) due`,
    values: [at, limit, processor],
  })
  return rows.map((row) => appId(row.app_id))
}

/**
 * Notes that nothing of the attempt's payment is left to be refunded, unless a refund came back
 * since the attempt was claimed.
 */
export async function saveRefunded(
  db: Db,
  { appId: app, id, refundCalls }: Pick<StoredAttempt, 'appId' | 'id' | 'refundCalls'>,
): Promise<void> {
  await db.query(sql`
    update payment_attempts set surplus_at = null
    where app_id = ${app} and id = ${id} and refund_calls = ${refundCalls}`)
}

/** Sums the fees of undecided charges in the apps that an owner pays for. */
export async function sumStartedFees(db: Db, owner: UserKey): Promise<UsdCents> {
  const { fees } = await one<{ fees: bigint }>(
    db,
    sql`
    with paid as materialized (
      select p.app_id
      from end_users u
      join app_payers p on u.external_user_id = 'account:' || p.account_id
      where u.app_id = ${owner.appId} and u.id = ${owner.userId}
    )
    select coalesce(sum(fee_cents), 0)::bigint as fees
    from payment_attempts
    where state = 'started' and app_id in (select app_id from paid)`,
  )
  return usdCents(fees)
}

export interface WaitingAttempts {
  /** Since when the oldest undecided attempt or surplus of the processor waits; null without one. */
  readonly since: Date | null
  /** Undecided attempts and surpluses of other processors. */
  readonly ofOthers: number
}

export async function findWaiting(db: Db, processor: Processor): Promise<WaitingAttempts> {
  const row = await one<{ since: Date | null; of_others: number }>(
    db,
    sql`
    select min(since) filter (where processor = ${processor}) as since,
           (count(*) filter (where processor <> ${processor}))::int as of_others
    from (
      select processor, created_at as since from payment_attempts where state = 'started'
      union all
      select processor, surplus_at from payment_attempts where surplus_at is not null) waiting`,
  )
  return { since: row.since, ofOthers: row.of_others }
}
