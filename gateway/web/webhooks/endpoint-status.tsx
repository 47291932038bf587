import type { ReactNode } from 'react'
import type { Endpoint } from '../api/webhooks.ts'

const reasons: Readonly<Record<string, string>> = {
  requested: 'disabled by a member',
  gone: 'disabled: it answered 410',
  failing: 'disabled: five days without a success',
  backlog: 'disabled: too many deliveries waited',
}

/** Whether an endpoint receives events, and if not, why. */
export function EndpointStatus({ endpoint }: { endpoint: Endpoint }): ReactNode {
  const { status, disabledReason, failingSince } = endpoint
  if (status === 'disabled')
    return <span className="badge bad">{reasons[disabledReason ?? ''] ?? 'disabled'}</span>
  if (failingSince !== null) return <span className="badge warn">failing</span>
  return <span className="badge good">active</span>
}
