import { type ReactNode, useState } from 'react'
import { type Processor, useProcessorChanges } from '../api/money.ts'
import { Button } from '../ui/button.tsx'
import { Confirm } from '../ui/confirm.tsx'
import { Instant } from '../ui/instant.tsx'
import { Failure } from '../ui/states.tsx'

interface ConnectionProps {
  readonly processor: Processor
  readonly canOwn: boolean
}

const looks = {
  disconnected: 'badge',
  pending: 'badge warn',
  connected: 'badge good',
} as const

const yes = (value: boolean): string => (value ? 'yes' : 'no')

/** The app's own account at the payment processor, to which its users pay. */
export function Connection({ processor, canOwn }: ConnectionProps): ReactNode {
  const { status, connectedAt } = processor
  return (
    <section className="card" aria-labelledby="connection">
      <h2 id="connection">
        Payment account <span className={looks[status]}>{status}</span>
      </h2>
      {processor.processor === null ? (
        <p className="soft">This deployment has no payment processor.</p>
      ) : (
        <dl className="facts">
          <div>
            <dt>Processor</dt>
            <dd>
              {processor.processor}, {processor.plane} plane
            </dd>
          </div>
          <div>
            <dt>Takes payments</dt>
            <dd>{yes(processor.chargesEnabled)}</dd>
          </div>
          <div>
            <dt>Is paid out</dt>
            <dd>{yes(processor.payoutsEnabled)}</dd>
          </div>
          {connectedAt !== null && (
            <div>
              <dt>Connected</dt>
              <dd>
                <Instant at={connectedAt} />
              </dd>
            </div>
          )}
        </dl>
      )}
      {canOwn && processor.processor !== null && <Changes processor={processor} />}
    </section>
  )
}

function Changes({ processor: { clientId, status } }: { processor: Processor }): ReactNode {
  const [isAsked, setAsked] = useState(false)
  const { connect, disconnect } = useProcessorChanges(clientId)
  const close = (): void => setAsked(false)
  return (
    <>
      <div className="row">
        {status !== 'connected' && (
          <Button
            kind="main"
            disabled={connect.isPending || connect.isSuccess}
            onClick={() => connect.mutate(undefined, { onSuccess: (url) => location.assign(url) })}
          >
            {status === 'pending' ? 'Complete the account' : 'Connect an account'}
          </Button>
        )}
        {status !== 'disconnected' && (
          <Button kind="danger" onClick={() => setAsked(true)}>
            Disconnect
          </Button>
        )}
      </div>
      {connect.error && <Failure error={connect.error} />}
      {isAsked && (
        <Confirm
          title="Disconnect the payment account?"
          effect="The app can sell nothing until an account is connected. Payments that were made stay as they are. It is refused while something is unpaid."
          action="Disconnect"
          isBusy={disconnect.isPending}
          error={disconnect.error}
          onConfirm={() => disconnect.mutate(undefined, { onSuccess: close })}
          onClose={close}
        />
      )}
    </>
  )
}
