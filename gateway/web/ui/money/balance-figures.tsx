import type { ReactNode } from 'react'
import type { Schemas } from '../../api/client.ts'
import { Micros } from '../amount.tsx'

interface BalanceFiguresProps {
  readonly balance: Pick<
    Schemas['Balance'],
    'remainingUsdMicros' | 'balanceUsdMicros' | 'consumedUsdMicros'
  >
  /** Whether calls are allowed, in words. */
  readonly access: string
  /** Further figures. */
  readonly children: ReactNode
}

/** What a user may still spend, has, and has consumed. */
export const BalanceFigures = ({ balance, access, children }: BalanceFiguresProps): ReactNode => (
  <dl className="stats" aria-label="Left">
    <div>
      <dt>May still spend</dt>
      <dd>
        <Micros value={balance.remainingUsdMicros} />
        <small>{access}</small>
      </dd>
    </div>
    <div>
      <dt>Balance</dt>
      <dd>
        <Micros value={balance.balanceUsdMicros} />
        <small>with money held for running calls</small>
      </dd>
    </div>
    <div>
      <dt>Consumed in this period</dt>
      <dd>
        <Micros value={balance.consumedUsdMicros} />
      </dd>
    </div>
    {children}
  </dl>
)

export const describeAccess = (canSpend: boolean): string =>
  canSpend ? 'calls are allowed' : 'calls are refused'
