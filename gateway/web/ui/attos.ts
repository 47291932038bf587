const decimal = /^(-?)(\d+)(?:\.(\d{1,18}))?$/

/** Parses decimal dollars into billionths of a billionth, exactly. Throws for other text. */
export function toAttos(dollars: string): bigint {
  const [, sign, whole, fraction = ''] = decimal.exec(dollars) ?? []
  if (whole === undefined) throw new Error(`not an amount: ${dollars}`)
  const size = BigInt(whole + fraction.padEnd(18, '0'))
  return sign === '-' ? -size : size
}

/** Rounds what `toAttos` returns to the nearest micro. */
export const attosToMicros = (attos: bigint): string => {
  const half = attos < 0n ? -500_000_000_000n : 500_000_000_000n
  return ((attos + half) / 1_000_000_000_000n).toString()
}
