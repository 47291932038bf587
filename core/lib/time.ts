import { DomainError } from '../../proto/errors.ts'

/** Time is a dependency: everything that needs it takes a `Now`. */
export type Now = () => Date

export const systemNow: Now = () => new Date()

/** `now` in Unix milliseconds, without a Date where it is the system's clock. */
export const clockOf = (now: Now): (() => number) =>
  now === systemNow ? Date.now : () => now().getTime()

export const secondsOf = (instant: Date): number => Math.floor(instant.getTime() / 1000)

export const addSeconds = (instant: Date, seconds: number): Date =>
  new Date(instant.getTime() + seconds * 1000)

const dateOnly = /^\d{4}-\d{2}-\d{2}$/
const dateTime = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}(:\d{2}(\.\d{1,9})?)?(Z|[+-]\d{2}:\d{2})$/

/** An ISO 8601 instant with a zone, or null: not the other forms that `Date.parse` accepts. */
export function parseInstant(text: string): Date | null {
  if (!dateTime.test(text) || !isCalendarDay(text.slice(0, 10))) return null
  const instant = new Date(text)
  return Number.isNaN(instant.getTime()) ? null : instant
}

/** The start of a `YYYY-MM-DD` day in UTC, or null. */
export function parseUtcDay(text: string): Date | null {
  return dateOnly.test(text) && isCalendarDay(text) ? new Date(`${text}T00:00:00.000Z`) : null
}

// Date turns the 31st of February into a day of March. Counted by hand, because a Date for the day
// alone costs more than the rest of parsing an instant.
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

/** The same day and time `months` later in UTC; a day that the month lacks becomes its last. */
export function addMonths(instant: Date, months: number): Date {
  const year = instant.getUTCFullYear()
  const month = instant.getUTCMonth() + months
  const lastDay = new Date(Date.UTC(year, month + 1, 0)).getUTCDate()
  const moved = new Date(instant)
  moved.setUTCFullYear(year, month, Math.min(instant.getUTCDate(), lastDay))
  return moved
}

/** The dates of a request, as text. */
export interface Dates {
  readonly startDate?: string | undefined
  readonly endDate?: string | undefined
}

/** Half-open `[start, end)`; null is open. */
export interface DateRange {
  readonly start: Date | null
  readonly end: Date | null
}

const dayMs = 86_400_000

/**
 * Both dates are inclusive: a day to its end, an instant to its millisecond (decisions 21 and 36). REQUEST_INVALID for
 * text that is no date, and for a start after the end.
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

/** Half-open: `start` belongs to it, `end` to the next (decision 36). */
export interface Period {
  readonly start: Date
  readonly end: Date
}

/**
 * The period of a subscription that contains `at`, counted from its anchor so that no month drifts: an anchor on
 * the 31st has the last day of shorter months. An instant before the anchor belongs to the first period.
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

/** From `since` on, periods have this length; one that is running then ends as it began. */
export interface CycleChange {
  readonly since: Date
  readonly cycle: BillingCycle
}

export interface CountedPeriod extends Period {
  /** What the period is counted from. */
  readonly anchor: Date
  readonly cycle: BillingCycle
}

/**
 * The period that contains `at`, of periods that are counted from `anchor` in the first of `changes`, which are in the
 * order of time. A later change takes effect where the next period begins; when the length is another one then, what
 * follows is counted from there. The newest change of a period wins.
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

/** The first start of a period at or after an instant. */
function boundaryFrom(anchor: Date, cycle: BillingCycle, at: Date): Date {
  if (at <= anchor) return anchor
  const { start, end } = periodAt(anchor, cycle, at)
  return start.getTime() === at.getTime() ? start : end
}

/** Whatever holds from its `createdAt` on, until the next one does. */
export interface Version {
  readonly createdAt: Date
}

/** Of versions in the order of time the newest at an instant; the first before all of them. */
export const newestAt = <V extends Version>(versions: readonly [V, ...V[]], at: Date): V =>
  versions.findLast(({ createdAt }) => createdAt <= at) ?? versions[0]

/** The lengths of periods by versions in the order of time, from what holds at `since` on. */
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
 * What periods of the length `next` are counted from that follow, at the boundary `at`, those of `anchor` and `changes`:
 * the same anchor while the length stays, so that a day that short months lack is not forgotten.
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

/** Instants `[start, end)`; an open side is null. */
interface OpenRange {
  readonly start: Date | null
  readonly end: Date | null
}

export interface Edge {
  readonly start: Date
  readonly end: Date
}

/** The whole hours `[from, to)` of a range, for which there are sums, and the parts of hours before and after them. */
export function splitAtHours({ start, end }: OpenRange): {
  from: Date | null
  to: Date | null
  edges: Edge[]
} {
  const from = start && new Date(Math.ceil(start.getTime() / hourMs) * hourMs)
  const to = end && new Date(Math.floor(end.getTime() / hourMs) * hourMs)
  // Both ends lie within one hour, so there is no whole hour between them.
  if (start && end && from && to && from > to) return { from, to: from, edges: [{ start, end }] }
  return { from, to, edges: [...edgeOf(start, from), ...edgeOf(to, end)] }
}

const edgeOf = (start: Date | null, end: Date | null): Edge[] =>
  start && end && start < end ? [{ start, end }] : []
