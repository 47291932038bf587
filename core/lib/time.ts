/** Time is a dependency: everything that needs it takes a `Now`. */
export type Now = () => Date

export const systemNow: Now = () => new Date()

/** Unix milliseconds of `now`, which for the system's own clock needs no Date. */
export const clockOf = (now: Now): (() => number) =>
  now === systemNow ? Date.now : () => now().getTime()

export const secondsOf = (instant: Date): number => Math.floor(instant.getTime() / 1000)

export const addSeconds = (instant: Date, seconds: number): Date =>
  new Date(instant.getTime() + seconds * 1000)

const dateOnly = /^\d{4}-\d{2}-\d{2}$/
const dateTime = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}(:\d{2}(\.\d{1,9})?)?(Z|[+-]\d{2}:\d{2})$/

/** An ISO 8601 instant or null: nothing else that `Date.parse` would guess at. */
export function parseInstant(text: string): Date | null {
  if (!dateTime.test(text) || !isCalendarDay(text.slice(0, 10))) return null
  const instant = new Date(text)
  return Number.isNaN(instant.getTime()) ? null : instant
}

/** The start of a `YYYY-MM-DD` day in UTC, or null. */
export function parseUtcDay(text: string): Date | null {
  return dateOnly.test(text) && isCalendarDay(text) ? new Date(`${text}T00:00:00.000Z`) : null
}

// Date would turn the 31st of February into a day of March.
const isCalendarDay = (text: string): boolean =>
  new Date(`${text}T00:00:00.000Z`).getUTCDate() === Number(text.slice(-2))

/** The same day and time `months` later in UTC; a day that the month lacks becomes its last. */
export function addMonths(instant: Date, months: number): Date {
  const year = instant.getUTCFullYear()
  const month = instant.getUTCMonth() + months
  const lastDay = new Date(Date.UTC(year, month + 1, 0)).getUTCDate()
  const moved = new Date(instant)
  moved.setUTCFullYear(year, month, Math.min(instant.getUTCDate(), lastDay))
  return moved
}
