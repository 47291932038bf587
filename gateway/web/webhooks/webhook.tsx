import { useQuery } from '@tanstack/react-query'
import { Link, useNavigate, useParams } from '@tanstack/react-router'
import { type ReactNode, useState } from 'react'
import { useRights } from '../api/rights.ts'
import { useIdempotencyKey } from '../api/submission.ts'
import { type Endpoint, endpointQuery, useEndpointChanges } from '../api/webhooks.ts'
import { Answer } from '../ui/answer.tsx'
import { Button } from '../ui/button.tsx'
import { Confirm } from '../ui/confirm.tsx'
import { Instant } from '../ui/instant.tsx'
import { Page } from '../ui/page.tsx'
import { Failure } from '../ui/states.tsx'
import { Secret } from './creation.tsx'
import { Deliveries } from './deliveries.tsx'
import { EditEndpoint } from './edit-endpoint.tsx'
import { EndpointStatus } from './endpoint-status.tsx'

/** One endpoint: its state, its secrets and what was sent to it. */
export function Webhook(): ReactNode {
  const { clientId, endpointId } = useParams({ from: '/$clientId/webhooks/$endpointId' })
  const { canEdit } = useRights(clientId)
  const endpoint = useQuery(endpointQuery(clientId, endpointId))
  return (
    <Page
      title="Webhook endpoint"
      about={
        <Link to="/$clientId/webhooks" params={{ clientId }}>
          All endpoints
        </Link>
      }
    >
      <Answer query={endpoint}>
        {(data) => (
          <>
            <Facts endpoint={data} />
            {canEdit && <Changes clientId={clientId} endpoint={data} />}
            <Deliveries clientId={clientId} endpointId={endpointId} canEdit={canEdit} />
          </>
        )}
      </Answer>
    </Page>
  )
}

const Facts = ({ endpoint }: { endpoint: Endpoint }): ReactNode => (
  <section className="card" aria-label="Endpoint">
    <dl className="facts">
      <div>
        <dt>Address</dt>
        <dd>
          <code>{endpoint.url}</code>
        </dd>
      </div>
      {endpoint.description !== '' && (
        <div>
          <dt>Note</dt>
          <dd>{endpoint.description}</dd>
        </div>
      )}
      <div>
        <dt>State</dt>
        <dd>
          <EndpointStatus endpoint={endpoint} />
          {endpoint.failingSince !== null && (
            <small className="soft">
              {' '}
              since <Instant at={endpoint.failingSince} />
            </small>
          )}
        </dd>
      </div>
      <div>
        <dt>Events</dt>
        <dd>{endpoint.eventTypes.length === 0 ? 'all' : endpoint.eventTypes.join(', ')}</dd>
      </div>
      <div>
        <dt>Secrets</dt>
        <dd>
          {endpoint.secrets.map(({ id, signing, createdAt, expiresAt }) => (
            <div key={id}>
              {signing}, made <Instant at={createdAt} />
              {expiresAt !== null && (
                <>
                  , ends <Instant at={expiresAt} />
                </>
              )}
            </div>
          ))}
        </dd>
      </div>
    </dl>
  </section>
)

type Asked = 'disable' | 'delete' | 'rotate'

function Changes({ clientId, endpoint }: { clientId: string; endpoint: Endpoint }): ReactNode {
  const navigate = useNavigate()
  const [asked, setAsked] = useState<Asked>()
  const [isEdited, setIsEdited] = useState(false)
  const [idempotencyKey, renewKey] = useIdempotencyKey()
  const { setStatus, remove, rotate, ping } = useEndpointChanges(clientId, endpoint.id)
  const close = (): void => {
    setAsked(undefined)
    for (const change of [setStatus, remove, rotate]) if (change.isError) change.reset()
  }
  const isActive = endpoint.status === 'active'
  const leave = (): void => void navigate({ to: '/$clientId/webhooks', params: { clientId } })
  return (
    <section className="card" aria-label="Changes">
      <div className="row">
        <Button kind="main" onClick={() => ping.mutate()} disabled={!isActive || ping.isPending}>
          Send a test event
        </Button>
        <Button onClick={() => setIsEdited(true)} disabled={isEdited}>
          Edit
        </Button>
        <Button onClick={() => setAsked('rotate')}>New secret</Button>
        {isActive ? (
          <Button onClick={() => setAsked('disable')}>Disable</Button>
        ) : (
          <Button onClick={() => setStatus.mutate('active')} disabled={setStatus.isPending}>
            Enable
          </Button>
        )}
        <Button kind="danger" onClick={() => setAsked('delete')}>
          Delete
        </Button>
      </div>
      {isEdited && (
        <EditEndpoint clientId={clientId} endpoint={endpoint} onClose={() => setIsEdited(false)} />
      )}
      {ping.isSuccess && <p role="status">The test event is queued. Its answer shows below.</p>}
      {ping.error && <Failure error={ping.error} />}
      {asked === undefined && setStatus.error && <Failure error={setStatus.error} />}
      {rotate.data && <Secret created={rotate.data} onClose={rotate.reset} />}
      {asked === 'disable' && (
        <Confirm
          title="Disable this endpoint?"
          effect="It receives nothing until you enable it again. Events of that time are not sent later."
          action="Disable"
          isBusy={setStatus.isPending}
          error={setStatus.error}
          onConfirm={() => setStatus.mutate('disabled', { onSuccess: close })}
          onClose={close}
        />
      )}
      {asked === 'rotate' && (
        <Confirm
          title="Make a new secret?"
          effect="Deliveries are signed with both secrets for a day, so that the receiver can switch. Then the present one ends."
          action="Make a new secret"
          isBusy={rotate.isPending}
          error={rotate.error}
          onConfirm={() =>
            rotate.mutate(idempotencyKey, {
              onSuccess: () => {
                renewKey()
                close()
              },
            })
          }
          onClose={close}
        />
      )}
      {asked === 'delete' && (
        <Confirm
          title="Delete this endpoint?"
          effect="Its secrets and its log of deliveries go with it. This cannot be undone."
          action="Delete"
          typed="delete"
          isBusy={remove.isPending}
          error={remove.error}
          onConfirm={() => remove.mutate(undefined, { onSuccess: leave })}
          onClose={close}
        />
      )}
    </section>
  )
}
