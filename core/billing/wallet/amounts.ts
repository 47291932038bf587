import type { UsdMicros } from '../../lib/money.ts'

/** Formats micros as dollars with at least two decimals; negative amounts as zero. */
export function formatUsd(micros: UsdMicros | bigint): string {
  const value: bigint = micros < 0n ? 0n : micros
  const decimals = String(value % 1_000_000n).padStart(6, '0')
  return `${value / 1_000_000n}.${decimals.slice(0, 2)}${decimals.slice(2).replace(/0+$/, '')}`
}
