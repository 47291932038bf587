const SECOND = 1_000_000_000n

/** Nanoseconds since 1970, the precision of Go's clock. */
export type Clock = () => bigint

/**
 * A clock that moves with `base` and can be advanced, so that tests set time instead of sleeping.
 */
export function createClock(base: Clock): { now: Clock; advance: (seconds: number) => void } {
  let offset = 0n
  return {
    now: () => base() + offset,
    advance: (seconds) => {
      offset += BigInt(Math.round(seconds * 1e9))
    },
  }
}

const started = process.hrtime.bigint()
const startedAt = BigInt(Date.now()) * 1_000_000n

/** The machine's clock with a fraction finer than a millisecond. */
export const systemClock: Clock = () => startedAt + process.hrtime.bigint() - started

export const toUnixSeconds = (at: bigint): bigint => floorDiv(at, SECOND)

export const toUnixMillis = (at: bigint): bigint => floorDiv(at, 1_000_000n)

function floorDiv(value: bigint, by: bigint): bigint {
  const remainder = ((value % by) + by) % by
  return (value - remainder) / by
}

/** Seconds as the float that Go's Duration.Seconds() returns. */
export const toSeconds = (elapsed: bigint): number =>
  Number(elapsed / SECOND) + Number(elapsed % SECOND) / 1e9

function offsetText(minutes: number): string {
  if (minutes === 0) return 'Z'
  const size = Math.abs(minutes)
  const hours = Math.floor(size / 60)
    .toString()
    .padStart(2, '0')
  return `${minutes < 0 ? '-' : '+'}${hours}:${(size % 60).toString().padStart(2, '0')}`
}

/** RFC 3339 with up to nine fraction digits, without trailing zeros, as Go prints time.Time. */
export function formatTime(at: bigint, offsetMinutes = 0): string {
  const seconds = toUnixSeconds(at)
  const local = new Date(Number(seconds) * 1000 + offsetMinutes * 60_000)
  const fraction = (at - seconds * SECOND).toString().padStart(9, '0').replace(/0+$/, '')
  const wall = local.toISOString().slice(0, 19)
  return `${wall}${fraction === '' ? '' : `.${fraction}`}${offsetText(offsetMinutes)}`
}

/** Reads the output of `formatTime`. Throws a SyntaxError for other text. */
export function parseTime(text: string): bigint {
  const match = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)$/.exec(text)
  const millis = match === null ? Number.NaN : Date.parse(`${match[1]}${match[3]}`)
  if (match === null || Number.isNaN(millis)) throw new SyntaxError(`not a time: ${text}`)
  return BigInt(millis) * 1_000_000n + BigInt((match[2] ?? '').padEnd(9, '0'))
}
