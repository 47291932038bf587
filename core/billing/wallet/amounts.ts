import { type UsdMicros, formatDollars, microsToAttos, usdMicros } from '../../lib/money.ts'

/** Formats micros as dollars with at least two decimals; negative amounts as zero. */
export const formatUsd = (micros: UsdMicros | bigint): string =>
  formatDollars(microsToAttos(usdMicros(micros < 0n ? 0n : micros)))
