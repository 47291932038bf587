import { type Db, many, maybeOne, sql } from '../../lib/sql.ts'

/** Writes checks: the last run of each. */

export const checkNames = ['books', 'metering', 'processor'] as const
export type CheckName = (typeof checkNames)[number]

/** A difference in words. */
export interface Finding {
  /** The app that it concerns, if it concerns one. */
  readonly clientId: string | null
  readonly text: string
}

export interface CheckOutcome {
  readonly summary: string
  /** The first findings; `total` counts all. */
  readonly findings: readonly Finding[]
  readonly total: number
  /** Why the check could not be completed; null if it was. */
  readonly failure: string | null
}

export interface Run {
  readonly name: CheckName
  readonly runId: string
  readonly startedAt: Date
  readonly startedBy: string
}

export interface StoredRun extends Run {
  readonly seenAt: Date
  readonly progress: string
  readonly endedAt: Date | null
  readonly outcome: CheckOutcome | null
}

/** Replaces the last run, unless it is running and was seen after `deadBefore`: then false. */
export async function insertRun(
  db: Db,
  { name, runId, startedAt, startedBy }: Run,
  deadBefore: Date,
): Promise<boolean> {
  const row = await maybeOne<{ name: string }>(
    db,
    sql`
    insert into checks (name, run_id, started_at, started_by, seen_at, progress)
    values (${name}, ${runId}, ${startedAt}, ${startedBy}, ${startedAt}, '')
    on conflict (name) do update
    set run_id = excluded.run_id, started_at = excluded.started_at, started_by = excluded.started_by,
        seen_at = excluded.seen_at, progress = excluded.progress, ended_at = null, outcome = null
    where checks.ended_at is not null or checks.seen_at < ${deadBefore}
    returning name`,
  )
  return row !== null
}

/** Returns false if another run has replaced this one. */
export async function saveProgress(
  db: Db,
  { runId }: Pick<Run, 'runId'>,
  { progress, at }: { readonly progress: string; readonly at: Date },
): Promise<boolean> {
  const { rowCount } = await db.query(sql`
    update checks set progress = ${progress}, seen_at = ${at}
    where run_id = ${runId} and ended_at is null`)
  return rowCount === 1
}

export async function saveOutcome(
  db: Db,
  { runId }: Pick<Run, 'runId'>,
  { outcome, at }: { readonly outcome: CheckOutcome; readonly at: Date },
): Promise<void> {
  await db.query(sql`
    update checks set outcome = ${JSON.stringify(outcome)}, ended_at = ${at}, seen_at = ${at}
    where run_id = ${runId} and ended_at is null`)
}

export const listRuns = (db: Db): Promise<StoredRun[]> =>
  many<StoredRun>(
    db,
    sql`
    select name, run_id as "runId", started_at as "startedAt", started_by as "startedBy", seen_at as "seenAt",
           progress, ended_at as "endedAt", outcome
    from checks`,
  )
