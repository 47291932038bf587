const rfc3339 = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)$/
const dayMs = 86_400_000

/**
 * Unix milliseconds of an RFC 3339 instant, what is below them cut off; null when it is none. The
 * calendar is not checked: a day that the month lacks is one of the next month.
 */
export function readInstant(text: string): number | null {
  if (!rfc3339.test(text)) return null
  if (!text.endsWith('Z')) return parsed(text)
  const month = digits(text, 5, 7)
  const day = digits(text, 8, 10)
  const [hour, minute, second] = [digits(text, 11, 13), digits(text, 14, 16), digits(text, 17, 19)]
  const isUsual = month > 0 && month < 13 && day > 0 && day < 32
  if (!isUsual || hour > 23 || minute > 59 || second > 59) return parsed(text)
  const days = daysBefore(digits(text, 0, 4), month) + day
  return days * dayMs + ((hour * 60 + minute) * 60 + second) * 1000 + millisecondsOf(text)
}

// The library's own takes 1 us of every decision, which UTC, as signers write it, can do without.
function parsed(text: string): number | null {
  const ms = Date.parse(text)
  return Number.isNaN(ms) ? null : ms
}

/** The number that stands there, of digits alone. */
function digits(text: string, from: number, to: number): number {
  let value = 0
  for (let i = from; i < to; i++) value = value * 10 + text.charCodeAt(i) - 48
  return value
}

const fractionAt = 20

function millisecondsOf(text: string): number {
  const end = Math.min(text.length - 1, fractionAt + 3)
  const value = digits(text, fractionAt, end)
  return value * (end === fractionAt + 3 ? 1 : end === fractionAt + 2 ? 10 : 100)
}

/** Days from 1970 to the day before the month begins. Years begin in March, so that leap days end them. */
function daysBefore(year: number, month: number): number {
  const [y, m] = month > 2 ? [year, month - 3] : [year - 1, month + 9]
  const leaps = Math.floor(y / 4) - Math.floor(y / 100) + Math.floor(y / 400)
  return 365 * y + leaps + Math.floor((153 * m + 2) / 5) - 719_469
}
