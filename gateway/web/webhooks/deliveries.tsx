import { useInfiniteQuery } from '@tanstack/react-query'
import { useNavigate, useSearch } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import {
  type Delivery,
  type DeliveryStatus,
  deliveriesQuery,
  deliveryStatuses,
  useEndpointChanges,
} from '../api/webhooks.ts'
import { Answer } from '../ui/answer.tsx'
import { Button } from '../ui/button.tsx'
import { Instant } from '../ui/instant.tsx'
import { More } from '../ui/more.tsx'
import { Empty, Failure } from '../ui/states.tsx'
import { LongTable } from '../ui/table/long-table.tsx'

interface DeliveriesProps {
  readonly clientId: string
  readonly endpointId: string
  readonly canEdit: boolean
}

/** What was sent to an endpoint in the last 30 days, newest first. */
export function Deliveries({ clientId, endpointId, canEdit }: DeliveriesProps): ReactNode {
  const { status } = useSearch({ from: '/$clientId/webhooks/$endpointId' })
  const navigate = useNavigate({ from: '/$clientId/webhooks/$endpointId' })
  const deliveries = useInfiniteQuery(deliveriesQuery({ clientId, endpointId, status }))
  const { replay } = useEndpointChanges(clientId, endpointId)
  const dayAgo = (): string => new Date(Date.now() - 86_400_000).toISOString()
  return (
    <section className="card" aria-labelledby="deliveries">
      <h2 id="deliveries">Deliveries</h2>
      <div className="row">
        <label>
          State
          <select
            value={status ?? ''}
            onChange={({ target }) => {
              const wanted = deliveryStatuses.find((one) => one === target.value)
              void navigate({ search: wanted === undefined ? {} : { status: wanted } })
            }}
          >
            <option value="">all</option>
            {deliveryStatuses.map((one) => (
              <option key={one}>{one}</option>
            ))}
          </select>
        </label>
        {canEdit && (
          <Button
            onClick={() => replay.mutate({ failedSince: dayAgo() })}
            disabled={replay.isPending}
          >
            Send failed ones of a day again
          </Button>
        )}
      </div>
      {replay.error && <Failure error={replay.error} />}
      {replay.data && (
        <p role="status">
          {replay.data.replayed === 0
            ? 'There was nothing to send again.'
            : `${replay.data.replayed} queued again, with the same event ids.`}
        </p>
      )}
      <Answer query={deliveries}>
        {({ pages }) => (
          <Rows
            deliveries={pages.flatMap((page) => page.deliveries)}
            hasMore={deliveries.hasNextPage}
            isFiltered={status !== undefined}
            isBusy={replay.isPending}
            onReplay={canEdit ? (deliveryId) => replay.mutate({ deliveryId }) : undefined}
          />
        )}
      </Answer>
      <More query={deliveries} label="Show older" />
    </section>
  )
}

interface RowsProps {
  readonly deliveries: readonly Delivery[]
  readonly hasMore: boolean
  readonly isFiltered: boolean
  readonly isBusy: boolean
  readonly onReplay: ((deliveryId: string) => void) | undefined
}

const columns = [
  { name: 'When' },
  { name: 'Event' },
  { name: 'State' },
  { name: 'Last answer' },
  { name: 'Details' },
]

const Rows = ({ deliveries, hasMore, isFiltered, isBusy, onReplay }: RowsProps): ReactNode =>
  deliveries.length === 0 ? (
    <Empty>
      {isFiltered
        ? 'No delivery of the last 30 days is in this state.'
        : 'Nothing was sent in the last 30 days. Send a test event to try the endpoint.'}
    </Empty>
  ) : (
    <LongTable
      label="Table of deliveries"
      columns={columns}
      pages={[deliveries]}
      hasMore={hasMore}
      keyOf={idOf}
    >
      {(delivery) => (
        <>
          <td>
            <Instant at={delivery.createdAt} />
          </td>
          <th scope="row">{delivery.eventType}</th>
          <td>
            <span className={looks[delivery.status]}>{delivery.status}</span>
            <small>
              {delivery.attempts} {delivery.attempts === 1 ? 'attempt' : 'attempts'}
            </small>
          </td>
          <td>{answerOf(delivery)}</td>
          <td>
            <Details delivery={delivery} isBusy={isBusy} onReplay={onReplay} />
          </td>
        </>
      )}
    </LongTable>
  )

const idOf = ({ id }: Delivery): string => id

const looks: Readonly<Record<DeliveryStatus, string>> = {
  pending: 'badge warn',
  delivered: 'badge good',
  failed: 'badge bad',
}

function answerOf({ lastStatus, lastError, lastDurationMs }: Delivery): string {
  const answer = lastStatus === null ? lastError : `HTTP ${lastStatus}`
  if (answer === null) return 'none yet'
  return lastDurationMs === null ? answer : `${answer} in ${lastDurationMs} ms`
}

const Details = ({
  delivery,
  isBusy,
  onReplay,
}: { delivery: Delivery } & Pick<RowsProps, 'isBusy' | 'onReplay'>): ReactNode => (
  <details>
    <summary>Show</summary>
    <dl>
      <div>
        <dt className="soft">event id</dt>
        <dd>
          <code>{delivery.eventId}</code>
        </dd>
      </div>
      {delivery.nextAttemptAt !== null && delivery.status === 'pending' && (
        <div>
          <dt className="soft">next attempt</dt>
          <dd>
            <Instant at={delivery.nextAttemptAt} />
          </dd>
        </div>
      )}
      {delivery.lastError !== null && (
        <div>
          <dt className="soft">error</dt>
          <dd>{delivery.lastError}</dd>
        </div>
      )}
      {delivery.lastResponse !== null && (
        <div>
          <dt className="soft">answer</dt>
          <dd>
            <code>{delivery.lastResponse}</code>
          </dd>
        </div>
      )}
      <div>
        <dt className="soft">body</dt>
        <dd>
          <pre>{JSON.stringify(delivery.payload, null, 2)}</pre>
        </dd>
      </div>
    </dl>
    {onReplay && (
      <Button isSmall disabled={isBusy} onClick={() => onReplay(delivery.id)}>
        Send again
      </Button>
    )}
  </details>
)
