import type { ReactNode } from 'react'
import { formatAttos, formatExactAttos, formatExactWei, formatWei } from '../ui/long-amounts.ts'

/** An amount in wei. Its exact value shows on hover. */
export const Wei = ({ value }: { value: string }): ReactNode => (
  <span title={formatExactWei(value)}>{formatWei(value)}</span>
)

/** An amount in 10^-18 USD. Its exact value shows on hover. */
export const Attos = ({ value }: { value: string }): ReactNode => (
  <span title={formatExactAttos(value)}>{formatAttos(value)}</span>
)
