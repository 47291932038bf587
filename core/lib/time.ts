import { DomainError } from '../../proto/errors.ts'

/** Code that needs the time takes a `Now`. */
export type Now = () => Date

export const systemNow: Now = () => new Date()

/** Returns `now` in Unix milliseconds. Avoids a Date object if `now` is the system clock. */
export const toClock = (now: Now): (() => number) =>
  now === systemNow ? Date.now : () => now().getTime()

export const toSeconds = (instant: Date): number => Math.floor(instant.getTime() / 1000)

export const addSeconds = (instant: Date, seconds: number): Date =>
  new Date(instant.getTime() + seconds * 1000)

const dateOnly = /^\d{4}-\d{2}-\d{2}$/
const dateTime = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}(:\d{2}(\.\d{1,9})?)?(Z|[+-]\d{2}:\d{2})$/

/**
 * Parses an ISO 8601 instant with a zone. Returns null for other text, including other forms that
 * `Date.parse` accepts.
 */
export function parseInstant(text: string): Date | null {
  if (!dateTime.test(text) || !isCalendarDay(text.slice(0, 10))) return null
  const instant = new Date(text)
  return Number.isNaN(instant.getTime()) ? null : instant
}

/** The start of a `YYYY-MM-DD` day in UTC; null if the text is not a date. */
export function parseUtcDay(text: string): Date | null {
  return dateOnly.test(text) && isCalendarDay(text) ? new Date(`${text}T00:00:00.000Z`) : null
}

// Date turns the 31st of February into a day in March. Computed without a Date, which would cost
// more than the rest of parsing an instant.
function isCalendarDay(text: string): boolean {
  const [year, month, day] = [
    Number(text.slice(0, 4)),
    Number(text.slice(5, 7)),
    Number(text.slice(8, 10)),
  ]
  return month >= 1 && month <= 12 && day >= 1 && day <= daysOfMonth(year, month)
}

function daysOfMonth(year: number, month: number): number {
  if (month === 2) return year % 4 === 0 && (year % 100 !== 0 || year % 400 === 0) ? 29 : 28
  return month === 4 || month === 6 || month === 9 || month === 11 ? 30 : 31
}

/** The same day and time `months` later in UTC. If the month is too short, its last day. */
function addMonths(instant: Date, months: number): Date {
  const year = instant.getUTCFullYear()
  const month = instant.getUTCMonth() + months
  const lastDay = new Date(Date.UTC(year, month + 1, 0)).getUTCDate()
  const moved = new Date(instant)
  moved.setUTCFullYear(year, month, Math.min(instant.getUTCDate(), lastDay))
  return moved
}

/** Dates of a request, as text. */
export interface Dates {
  readonly startDate?: string | undefined
  readonly endDate?: string | undefined
}

/** Half-open `[start, end)`. A null side is open. */
export interface DateRange {
  readonly start: Date | null
  readonly end: Date | null
}

const dayMs = 86_400_000

/**
 * Parses dates that are both inclusive: a day to its end, an instant to its millisecond (decisions
 * 21 and 36). Throws REQUEST_INVALID for text that is not a date, and for a start after the end.
 */
export function parseDates({ startDate, endDate }: Dates): DateRange {
  const start = startDate === undefined ? null : parseDate('startDate', startDate).start
  const end = endDate === undefined ? null : parseDate('endDate', endDate).end
  if (start && end && start >= end)
    throw new DomainError('REQUEST_INVALID', 'startDate must not be after endDate')
  return { start, end }
}

function parseDate(name: string, text: string): { start: Date; end: Date } {
  const day = parseUtcDay(text)
  if (day) return { start: day, end: new Date(day.getTime() + dayMs) }
  const instant = parseInstant(text)
  if (!instant)
    throw new DomainError(
      'REQUEST_INVALID',
      `${name} must be an ISO 8601 date or instant with a zone`,
    )
  return { start: instant, end: new Date(instant.getTime() + 1) }
}

export type BillingCycle = 'daily' | 'weekly' | 'monthly'

/** Half-open: `start` belongs to this period, `end` to the next (decision 36). */
export interface Period {
  readonly start: Date
  readonly end: Date
}

/**
 * The subscription period that contains `at`. Periods are counted from the anchor, so that months
 * do not drift: an anchor on the 31st becomes the last day of shorter months. An instant before the
 * anchor belongs to the first period.
 */
export function periodAt(anchor: Date, cycle: BillingCycle, at: Date): Period {
  if (cycle !== 'monthly') return fixedPeriod(anchor, cycle === 'daily' ? dayMs : 7 * dayMs, at)
  const years = at.getUTCFullYear() - anchor.getUTCFullYear()
  let index = Math.max(0, years * 12 + at.getUTCMonth() - anchor.getUTCMonth())
  if (index > 0 && addMonths(anchor, index) > at) index -= 1
  return { start: addMonths(anchor, index), end: addMonths(anchor, index + 1) }
}

function fixedPeriod(anchor: Date, lengthMs: number, at: Date): Period {
  const index = Math.max(0, Math.floor((at.getTime() - anchor.getTime()) / lengthMs))
  const start = anchor.getTime() + index * lengthMs
  return { start: new Date(start), end: new Date(start + lengthMs) }
}

/**
 * Periods that start at or after `since` have this length. A period that is already running keeps
 * its end.
 */
export interface CycleChange {
  readonly since: Date
  readonly cycle: BillingCycle
}

export interface CountedPeriod extends Period {
  /** Start of the first period in this count. */
  readonly anchor: Date
  readonly cycle: BillingCycle
}

/**
 * The period that contains `at`. Periods are counted from `anchor` with the first of `changes`,
 * which are in chronological order. A later change takes effect at the next period start. If it
 * changes the length, later periods are counted from there. The newest change within a period wins.
 */
export function periodIn(
  anchor: Date,
  changes: readonly [CycleChange, ...CycleChange[]],
  at: Date,
): CountedPeriod {
  let [from, cycle] = [anchor, changes[0].cycle]
  for (let i = 1; i < changes.length; i++) {
    const boundary = boundaryFrom(from, cycle, changes[i]?.since ?? at)
    if (boundary > at) break
    while ((changes[i + 1]?.since ?? never) <= boundary) i++
    const next = changes[i]?.cycle ?? cycle
    if (next !== cycle) [from, cycle] = [boundary, next]
  }
  return { ...periodAt(from, cycle, at), anchor: from, cycle }
}

const never = new Date(8.64e15)

/** The first period start at or after an instant. */
function boundaryFrom(anchor: Date, cycle: BillingCycle, at: Date): Date {
  if (at <= anchor) return anchor
  const { start, end } = periodAt(anchor, cycle, at)
  return start.getTime() === at.getTime() ? start : end
}

/** A version applies from its `createdAt` until the next version's. */
export interface Version {
  readonly createdAt: Date
}

/**
 * The newest of chronological versions at an instant; the first version if the instant is before
 * all.
 */
export const newestAt = <V extends Version>(versions: readonly [V, ...V[]], at: Date): V =>
  versions.findLast(({ createdAt }) => createdAt <= at) ?? versions[0]

/** The period lengths of chronological versions, starting with the one that applies at `since`. */
export function cyclesSince<V extends Version & { readonly cycle: BillingCycle }>(
  versions: readonly [V, ...V[]],
  since: Date,
): [CycleChange, ...CycleChange[]] {
  const later = versions.filter(({ createdAt }) => createdAt > since)
  return [
    { since, cycle: newestAt(versions, since).cycle },
    ...later.map(({ createdAt, cycle }) => ({ since: createdAt, cycle })),
  ]
}

/**
 * The anchor of the periods of length `next` that follow, from the boundary `at`, the periods of
 * `anchor` and `changes`. It stays the same while the length stays, so that a day missing in short
 * months (the 31st) is kept.
 */
export function anchorFrom(
  at: Date,
  {
    anchor,
    changes,
  }: { readonly anchor: Date; readonly changes: readonly [CycleChange, ...CycleChange[]] },
  next: BillingCycle,
): Date {
  const before = periodIn(anchor, changes, new Date(at.getTime() - 1))
  return before.cycle === next && before.end.getTime() === at.getTime() ? before.anchor : at
}

const hourMs = 3_600_000

/** Half-open `[start, end)`. A null side is open. */
interface OpenRange {
  readonly start: Date | null
  readonly end: Date | null
}

export interface Edge {
  readonly start: Date
  readonly end: Date
}

/**
 * Splits a range into whole hours `[from, to)`, which have stored sums, and the partial hours
 * before and after them.
 */
export function splitAtHours({ start, end }: OpenRange): {
  from: Date | null
  to: Date | null
  edges: Edge[]
} {
  const from = start && new Date(Math.ceil(start.getTime() / hourMs) * hourMs)
  const to = end && new Date(Math.floor(end.getTime() / hourMs) * hourMs)
  // Both ends are within one hour, so there is no whole hour between them.
  if (start && end && from && to && from > to) return { from, to: from, edges: [{ start, end }] }
  return { from, to, edges: [...edgeOf(start, from), ...edgeOf(to, end)] }
}

const edgeOf = (start: Date | null, end: Date | null): Edge[] =>
  start && end && start < end ? [{ start, end }] : []
