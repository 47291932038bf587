import { type Db, many, maybeOne, one, sql } from '../lib/sql.ts'
import { sealedColumn } from '../shared/sealing/column-sql.ts'
import type { SealedPlace } from '../shared/sealing/sealing.ts'
import type { MailKind } from './kinds.ts'

/** Reads and writes mails. */

export interface NewMail {
  readonly id: string
  readonly kind: MailKind
  readonly once: string
  readonly email: string
  readonly status: 'waiting' | 'kept'
  readonly sealedLetter: Buffer
  readonly at: Date
  readonly expiresAt: Date
}

/** Returns false if the mail of this cause was written before. */
export async function insertMail(db: Db, mail: NewMail): Promise<boolean> {
  const { rowCount } = await db.query(sql`
    insert into mails (id, kind, once, email, status, sealed_letter, created_at, expires_at)
    values (${mail.id}, ${mail.kind}, ${mail.once}, ${mail.email}, ${mail.status}, ${mail.sealedLetter},
            ${mail.at}, ${mail.expiresAt})
    on conflict (once) do nothing`)
  return rowCount === 1
}

/** Why a mail was not sent. */
export const limits = {
  limited: 'the address has had too many mails',
  capped: 'the deployment has sent too many mails of this kind (MAIL_LINKS_PER_HOUR)',
} as const
export type Limit = keyof typeof limits
const unsentReasons = Object.values(limits)

/** Writes that a mail was not sent. Returns false if the mail of this cause was written before. */
export async function insertLimited(
  db: Db,
  { id, kind, once, email, at }: Pick<NewMail, 'id' | 'kind' | 'once' | 'email' | 'at'>,
  limit: Limit,
): Promise<boolean> {
  const { rowCount } = await db.query(sql`
    insert into mails (id, kind, once, email, status, last_error, created_at, expires_at, ended_at)
    values (${id}, ${kind}, ${once}, ${email}, 'failed', ${limits[limit]}, ${at}, ${at}, ${at})
    on conflict (once) do nothing`)
  return rowCount === 1
}

/** Counts the address's mails of these kinds since a time, without those that were never sent. */
export async function countTo(
  db: Db,
  { email, kinds, since }: { email: string; kinds: readonly MailKind[]; since: Date },
): Promise<number> {
  const { count } = await one<{ count: number }>(
    db,
    sql`
    select count(*)::int as count from mails
    where email = ${email} and created_at > ${since} and kind = any(${kinds}::text[])
      and coalesce(last_error <> all(${unsentReasons}::text[]), true)`,
  )
  return count
}

/** Counts the deployment's mails of a kind since a time, up to `max`, without those that were never sent. */
export async function countOfKind(
  db: Db,
  { kind, since, max }: { kind: MailKind; since: Date; max: number },
): Promise<number> {
  const { count } = await one<{ count: number }>(
    db,
    sql`
    select count(*)::int as count
    from (
      select from mails
      where created_at > ${since} and kind = ${kind} and coalesce(last_error <> all(${unsentReasons}::text[]), true)
      limit ${max}) m`,
  )
  return count
}

export interface WaitingMail {
  readonly id: string
  readonly kind: string
  readonly email: string
  readonly attempts: number
  readonly sealedLetter: Buffer
  readonly expiresAt: Date
}

/** Returns null if the mail has ended. */
export const findWaiting = (db: Db, id: string): Promise<WaitingMail | null> =>
  maybeOne<WaitingMail>(
    db,
    sql`
    select id, kind, email, attempts, sealed_letter as "sealedLetter", expires_at as "expiresAt"
    from mails where id = ${id} and status = 'waiting'`,
  )

export async function endMail(
  db: Db,
  {
    id,
    status,
    error,
    at,
  }: { id: string; status: 'sent' | 'failed'; error: string | null; at: Date },
): Promise<void> {
  await db.query(sql`
    update mails
    set status = ${status}, attempts = attempts + ${status === 'sent' ? 1 : 0}, last_error = ${error},
        sealed_letter = null, ended_at = ${at}
    where id = ${id} and status = 'waiting'`)
}

export async function countFailure(db: Db, id: string, error: string): Promise<void> {
  await db.query(sql`
    update mails set attempts = attempts + 1, last_error = ${error} where id = ${id} and status = 'waiting'`)
}

/** Stores why the server takes no mail now. */
export async function noteError(db: Db, id: string, error: string): Promise<void> {
  await db.query(
    sql`update mails set last_error = ${error} where id = ${id} and status = 'waiting'`,
  )
}

export interface MailRow {
  readonly id: string
  readonly kind: string
  readonly email: string
  readonly status: string
  readonly attempts: number
  readonly lastError: string | null
  readonly sealedLetter: Buffer | null
  readonly createdAt: Date
  readonly endedAt: Date | null
}

/** Lists the newest mails. */
export const listMails = (db: Db, limit: number): Promise<MailRow[]> =>
  many<MailRow>(
    db,
    sql`
    select id, kind, email, status, attempts, last_error as "lastError", sealed_letter as "sealedLetter",
           created_at as "createdAt", ended_at as "endedAt"
    from mails order by created_at desc, id desc limit ${limit}`,
  )

const countBound = 100_000

/** The number of waiting mails, counted up to a hundred thousand. */
export async function countWaiting(db: Db): Promise<number> {
  const { count } = await one<{ count: number }>(
    db,
    sql`
    select count(*)::int as count
    from (select from mails where status = 'waiting' limit ${countBound}) waiting`,
  )
  return count
}

/** Deletes at most `limit` old mails. Returns their number. */
export async function deleteOld(db: Db, before: Date, limit: number): Promise<number> {
  const { rowCount } = await db.query(sql`
    delete from mails
    where ctid in (select ctid from mails where created_at < ${before} limit ${limit} for update skip locked)`)
  return rowCount ?? 0
}

export const placeOfLetter = (id: string): SealedPlace => ({
  purpose: 'mail',
  context: `mail:${id}`,
})

/** Letters of waiting and kept mails, for re-encryption under a new key-encryption key. */
export const sealedMails = sealedColumn({
  table: 'mails',
  column: 'sealed_letter',
  key: ['id'],
  isUuid: true,
  placeOf: placeOfLetter,
})
