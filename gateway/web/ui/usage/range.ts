/** A range of time to show figures of, and the range before to compare with. */

export const presets = ['1h', '24h', '7d', '30d', 'month', 'last-month', '90d', '1y'] as const
export type Preset = (typeof presets)[number]

/** The range in the address of a view: a preset, or UTC days, both included. */
export interface RangeSearch {
  readonly range?: Preset
  readonly from?: string
  readonly to?: string
}

/** Half-open, in Unix milliseconds. */
export interface Span {
  readonly start: number
  readonly end: number
}

export interface Range {
  readonly current: Span
  /** As much time as `current`, except where a month is shorter. */
  readonly before: Span
  /** Whether it begins with a UTC day. */
  readonly isOfDays: boolean
}

const minuteMs = 60_000
const hourMs = 3_600_000
const quarterMs = 900_000
const dayMs = 86_400_000
const defaultPreset: Preset = '30d'

/** The days of each preset that ends today. */
const dayCounts = new Map<Preset, number>([
  ['7d', 7],
  ['30d', 30],
  ['90d', 90],
  ['1y', 365],
])
const rollingMs = new Map<Preset, number>([
  ['1h', hourMs],
  ['24h', 24 * hourMs],
])

/** Reads the range of an address. Leaves out what is no range. */
export function parseRangeSearch({ range, from, to }: Record<string, unknown>): RangeSearch {
  const preset = presets.find((known) => known === range)
  if (preset !== undefined) return { range: preset }
  return isDay(from) && isDay(to) && from <= to ? { from, to } : {}
}

/** The preset of a range; undefined for chosen days. */
export const findPreset = ({ range, from }: RangeSearch): Preset | undefined =>
  range ?? (from === undefined ? defaultPreset : undefined)

/** Returns the range of an address as of `now`. */
export function toRange(search: RangeSearch, now: number): Range {
  const preset = findPreset(search)
  if (preset === undefined) return chosenDays(search.from ?? '', search.to ?? '', now)
  const rolling = rollingMs.get(preset)
  if (rolling !== undefined) {
    const end = roundUp(now, minuteMs)
    return withShift({ start: end - rolling, end }, rolling, false)
  }
  const end = roundUp(now, 5 * minuteMs)
  const days = dayCounts.get(preset)
  if (days !== undefined)
    return withShift({ start: startOfDay(now) - (days - 1) * dayMs, end }, days * dayMs, true)
  return preset === 'month' ? thisMonth(now, end) : lastMonth(now)
}

/** The dates of a span for the API, which includes both. */
export const toDates = ({ start, end }: Span): { startDate: string; endDate: string } => ({
  startDate: new Date(start).toISOString(),
  endDate: new Date(end - 1).toISOString(),
})

/** The span of an answer's period, whose dates are those of `toDates`. */
export const toSpan = ({ start, end }: { start: string | null; end: string | null }): Span => ({
  start: Date.parse(start ?? ''),
  end: Date.parse(end ?? '') + 1,
})

/**
 * Widens a span to the quarter of an hour of its start and the end of its last UTC day, so that the
 * same answer serves for a while.
 */
export const widen = ({ start, end }: Span): Span => ({
  start: Math.floor(start / quarterMs) * quarterMs,
  end: roundUp(end, dayMs),
})

/** The UTC day of an instant. */
export const formatUtcDay = (ms: number): string => new Date(ms).toISOString().slice(0, 10)

/** The time between two bars of a chart: hours of up to seven days, else days. */
export type Step = 'day' | 'hour'
export const toStep = ({ start, end }: Span): Step => (end - start <= 7 * dayMs ? 'hour' : 'day')

export const stepMs: Readonly<Record<Step, number>> = { day: dayMs, hour: hourMs }

/** The start of each UTC day or hour that a span touches. */
export function listStarts({ start, end }: Span, step: Step): number[] {
  const ms = stepMs[step]
  const first = Math.floor(start / ms) * ms
  return Array.from({ length: Math.ceil((end - first) / ms) }, (_, index) => first + index * ms)
}

/** The UTC days that a span touches. */
export const countDays = ({ start, end }: Span): number =>
  (startOfDay(end - 1) - startOfDay(start)) / dayMs + 1

const roundUp = (ms: number, step: number): number => Math.ceil(ms / step) * step
const startOfDay = (ms: number): number => Math.floor(ms / dayMs) * dayMs

const withShift = ({ start, end }: Span, by: number, isOfDays: boolean): Range => ({
  current: { start, end },
  before: { start: start - by, end: end - by },
  isOfDays,
})

function chosenDays(from: string, to: string, now: number): Range {
  const start = Date.parse(from)
  const whole = Date.parse(to) + dayMs
  const isRunning = start < now && now < whole
  const end = isRunning ? Math.min(whole, roundUp(now, 5 * minuteMs)) : whole
  return withShift({ start, end }, whole - start, true)
}

const monthStart = (now: number, months: number): number => {
  const date = new Date(now)
  return Date.UTC(date.getUTCFullYear(), date.getUTCMonth() + months, 1)
}

function thisMonth(now: number, end: number): Range {
  const [start, startBefore] = [monthStart(now, 0), monthStart(now, -1)]
  const endBefore = Math.min(start, startBefore + (end - start))
  return { current: { start, end }, before: { start: startBefore, end: endBefore }, isOfDays: true }
}

const lastMonth = (now: number): Range => ({
  current: { start: monthStart(now, -1), end: monthStart(now, 0) },
  before: { start: monthStart(now, -2), end: monthStart(now, -1) },
  isOfDays: true,
})

/** Whether it is a day of the calendar, such as 2026-02-28. */
export function isDay(value: unknown): value is string {
  if (typeof value !== 'string' || !/^\d{4}-\d{2}-\d{2}$/.test(value)) return false
  const ms = Date.parse(value)
  return !Number.isNaN(ms) && formatUtcDay(ms) === value
}
