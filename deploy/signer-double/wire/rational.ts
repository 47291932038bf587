/** An exact fraction in lowest terms; the denominator is always positive. */
export type Rational = Readonly<{ n: bigint; d: bigint }>

export const ZERO: Rational = { n: 0n, d: 1n }

function gcd(a: bigint, b: bigint): bigint {
  return b === 0n ? a : gcd(b, a % b)
}

export const abs = (value: bigint): bigint => (value < 0n ? -value : value)

/** `n / d` in lowest terms. Throws a RangeError for a denominator of zero. */
export function rational(n: bigint, d = 1n): Rational {
  if (d === 0n) throw new RangeError('a fraction needs a denominator other than zero')
  const divisor = gcd(abs(n), abs(d)) * (d < 0n ? -1n : 1n)
  return { n: n / divisor, d: d / divisor }
}

export const add = (a: Rational, b: Rational): Rational =>
  rational(a.n * b.d + b.n * a.d, a.d * b.d)

export const subtract = (a: Rational, b: Rational): Rational => add(a, { n: -b.n, d: b.d })

export const multiply = (a: Rational, b: Rational): Rational => rational(a.n * b.n, a.d * b.d)

export const divide = (a: Rational, b: Rational): Rational => rational(a.n * b.d, a.d * b.n)

/** Negative, zero or positive, as `a` is below, equal to or above `b`. */
export function compare(a: Rational, b: Rational): number {
  const difference = a.n * b.d - b.n * a.d
  return difference < 0n ? -1 : Number(difference > 0n)
}

export function ceil({ n, d }: Rational): bigint {
  const quotient = n / d
  return n > 0n && n % d !== 0n ? quotient + 1n : quotient
}

/** Rounds half away from zero, like Go's `big.Rat.FloatString`. */
export function round({ n, d }: Rational): bigint {
  const magnitude = (abs(n) * 2n + d) / (2n * d)
  return n < 0n ? -magnitude : magnitude
}

/** The text of Go's `big.Rat.RatString`: `120000`, `6000/7`. */
export const ratText = ({ n, d }: Rational): string => (d === 1n ? `${n}` : `${n}/${d}`)

/** The text of Go's `big.Rat.FloatString`: always `places` (at least 1) decimals. */
export function decimalText(value: Rational, places: number): string {
  const scale = 10n ** BigInt(places)
  const scaled = round({ n: value.n * scale, d: value.d })
  const whole = abs(scaled) / scale
  const fraction = (abs(scaled) % scale).toString().padStart(places, '0')
  return `${scaled < 0n ? '-' : ''}${whole}.${fraction}`
}

const MAX_EXPONENT = 400

/** Reads a JSON number literal exactly; undefined for other text, and for exponents beyond 400. */
export function parseDecimal(text: string): Rational | undefined {
  const match = /^(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?$/.exec(text)
  const exponent = Number(match?.[4] ?? 0)
  if (match === null || text.length > 500 || Math.abs(exponent) > MAX_EXPONENT) return undefined
  const fraction = match[3] ?? ''
  const digits = BigInt(`${match[2] ?? ''}${fraction}`)
  const shift = BigInt(exponent - fraction.length)
  const signed = match[1] === '-' ? -digits : digits
  return shift < 0n ? rational(signed, 10n ** -shift) : rational(signed * 10n ** shift)
}

/** Reads the output of `ratText`. Throws a SyntaxError for other text. */
export function parseRatText(text: string): Rational {
  const match = /^(-?\d+)(?:\/(\d+))?$/.exec(text)
  if (match === null) throw new SyntaxError(`not a fraction: ${text}`)
  return rational(BigInt(match[1] ?? '0'), BigInt(match[2] ?? '1'))
}
