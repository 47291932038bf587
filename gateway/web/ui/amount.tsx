import type { ReactNode } from 'react'
import { roundToMicros, formatDollars, formatExactMicros, formatMicros } from './amounts.ts'
import { useExact } from './exact/exact.ts'
import { formatAttos, formatExactAttos, formatExactWei, formatWei } from './long-amounts.ts'

interface RoundedProps {
  readonly exact: string
  readonly children: string
}

/** A rounded value. The exact one shows on hover, and in its place if the reader wants that. */
function Rounded({ exact, children }: RoundedProps): ReactNode {
  const isExact = useExact()
  return <span title={exact}>{isExact ? exact : children}</span>
}

/** An amount in USD micros. Its exact value shows on hover. */
export const Micros = ({ value }: { value: string }): ReactNode => (
  <Rounded exact={formatExactMicros(value)}>{formatMicros(value)}</Rounded>
)

/** An amount in dollars, given as decimal text. */
export const Dollars = ({ value }: { value: string }): ReactNode => (
  <span>{formatDollars(value)}</span>
)

/** An amount in dollars of any number of digits. Its exact value shows on hover. */
export const ExactDollars = ({ value }: { value: string }): ReactNode => (
  <Rounded exact={`${value} USD`}>{formatMicros(roundToMicros(value))}</Rounded>
)

/** An amount in wei. Its exact value shows on hover. */
export const Wei = ({ value }: { value: string }): ReactNode => (
  <Rounded exact={formatExactWei(value)}>{formatWei(value)}</Rounded>
)

/** An amount in 10^-18 USD. Its exact value shows on hover. */
export const Attos = ({ value }: { value: string }): ReactNode => (
  <Rounded exact={formatExactAttos(value)}>{formatAttos(value)}</Rounded>
)
