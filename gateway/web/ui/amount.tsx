import type { ReactNode } from 'react'
import { roundToMicros, formatDollars, formatExactMicros, formatMicros } from './amounts.ts'
import { formatAttos, formatExactAttos, formatExactWei, formatWei } from './long-amounts.ts'

/** An amount in USD micros. Its exact value shows on hover. */
export const Micros = ({ value }: { value: string }): ReactNode => (
  <span title={formatExactMicros(value)}>{formatMicros(value)}</span>
)

/** An amount in dollars, given as decimal text. */
export const Dollars = ({ value }: { value: string }): ReactNode => (
  <span>{formatDollars(value)}</span>
)

/** An amount in dollars of any number of digits. Its exact value shows on hover. */
export const ExactDollars = ({ value }: { value: string }): ReactNode => (
  <span title={`${value} USD`}>{formatMicros(roundToMicros(value))}</span>
)

/** An amount in wei. Its exact value shows on hover. */
export const Wei = ({ value }: { value: string }): ReactNode => (
  <span title={formatExactWei(value)}>{formatWei(value)}</span>
)

/** An amount in 10^-18 USD. Its exact value shows on hover. */
export const Attos = ({ value }: { value: string }): ReactNode => (
  <span title={formatExactAttos(value)}>{formatAttos(value)}</span>
)
