/** An instant of the signer's clock, to the nanosecond. */
export interface SignerTime {
  /** Unix seconds. */
  readonly seconds: number
  /** Nanoseconds within the second. */
  readonly nanos: number
}

// The years 1 to 9999 in UTC. Core stores no others, and refuses the whole report with one.
const secondsMin = -62_135_596_800
const secondsMax = 253_402_300_799

/**
 * Reads a time in Go's format (RFC 3339, up to nine fraction digits, any offset, the years 1 to
 * 9999 in UTC); null for other text. Reads digit by digit, because each decision reads one and a
 * Date has only milliseconds.
 */
export function parseSignerTime(text: string): SignerTime | null {
  const day = dayOf(text)
  const second = secondOf(text)
  if (day === null || second === null) return null
  const zone = text.charCodeAt(19) === dot ? endOfDigits(text, 20) : 19
  const offset = offsetOf(text, zone)
  if (offset === null || zone === 20 || zone > 29) return null
  const seconds = day * 86_400 + second - offset
  if (seconds < secondsMin || seconds > secondsMax) return null
  return { seconds, nanos: zone === 19 ? 0 : nanosOf(text, zone) }
}

const zero = 48
const dot = 46
const [minus, plus, colon, letterT, letterZ] = [45, 43, 58, 84, 90]

/** The number in `count` digits from `from`; NaN when one is not a digit. */
function numberAt(text: string, from: number, count: number): number {
  let value = 0
  for (let at = from; at < from + count; at++) {
    const digit = text.charCodeAt(at) - zero
    if (!(digit >= 0 && digit <= 9)) return NaN
    value = value * 10 + digit
  }
  return value
}

function endOfDigits(text: string, from: number): number {
  let at = from
  while (text.charCodeAt(at) >= zero && text.charCodeAt(at) <= zero + 9) at++
  return at
}

const nanosOf = (text: string, end: number): number =>
  numberAt(text, 20, end - 20) * 10 ** (29 - end)

/** Days since 1970-01-01 of the text's date. */
function dayOf(text: string): number | null {
  const [year, month, day] = [numberAt(text, 0, 4), numberAt(text, 5, 2), numberAt(text, 8, 2)]
  if (text.charCodeAt(4) !== minus || text.charCodeAt(7) !== minus) return null
  if (!(year >= 0 && month >= 1 && month <= 12 && day >= 1)) return null
  return day <= daysOfMonth(year, month) ? daysBefore(year, month) + day - 1 : null
}

const isLeap = (year: number): boolean => year % 4 === 0 && (year % 100 !== 0 || year % 400 === 0)

function daysOfMonth(year: number, month: number): number {
  if (month === 2) return isLeap(year) ? 29 : 28
  return month === 4 || month === 6 || month === 9 || month === 11 ? 30 : 31
}

const daysBeforeMonth = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334] as const
const daysBefore1970 = 719_528

function daysBefore(year: number, month: number): number {
  const before = year - 1
  // Year 0 is a leap year, and the floor of a negative quotient counts it.
  const leapDays = Math.floor(before / 4) - Math.floor(before / 100) + Math.floor(before / 400) + 1
  const leapDay = month > 2 && isLeap(year) ? 1 : 0
  return year * 365 + leapDays + (daysBeforeMonth[month - 1] ?? 0) + leapDay - daysBefore1970
}

/** Seconds since midnight. */
function secondOf(text: string): number | null {
  if (text.charCodeAt(10) !== letterT) return null
  if (text.charCodeAt(13) !== colon || text.charCodeAt(16) !== colon) return null
  const [hour, minute, second] = [
    numberAt(text, 11, 2),
    numberAt(text, 14, 2),
    numberAt(text, 17, 2),
  ]
  return hour <= 23 && minute <= 59 && second <= 59 ? hour * 3600 + minute * 60 + second : null
}

/** The offset at the end of the text, in seconds east of UTC. */
function offsetOf(text: string, from: number): number | null {
  const sign = text.charCodeAt(from)
  if (sign === letterZ) return text.length === from + 1 ? 0 : null
  if (text.length !== from + 6 || text.charCodeAt(from + 3) !== colon) return null
  const [hours, minutes] = [numberAt(text, from + 1, 2), numberAt(text, from + 4, 2)]
  if (!(hours <= 23 && minutes <= 59) || (sign !== plus && sign !== minus)) return null
  return (sign === plus ? 1 : -1) * (hours * 3600 + minutes * 60)
}
