import { useQuery } from '@tanstack/react-query'
import { Link, useParams } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import { useRights } from '../api/rights.ts'
import { type Endpoint, endpointsQuery } from '../api/webhooks.ts'
import { Answer } from '../ui/answer.tsx'
import { Instant } from '../ui/instant.tsx'
import { Page } from '../ui/page.tsx'
import { Empty } from '../ui/states.tsx'
import { TableBox } from '../ui/table-box.tsx'
import { Creation } from './creation.tsx'
import { EndpointStatus } from './endpoint-status.tsx'

/** The addresses that receive an app's events. */
export function Webhooks(): ReactNode {
  const { clientId } = useParams({ from: '/$clientId/webhooks' })
  const { canEdit } = useRights(clientId)
  const endpoints = useQuery(endpointsQuery(clientId))
  return (
    <Page
      title="Webhooks"
      about="Addresses of your own that receive events: users, keys, balances, subscriptions, payments, invoices."
    >
      {canEdit && <Creation clientId={clientId} />}
      <section className="card" aria-label="Endpoints">
        <Answer query={endpoints}>
          {(data) =>
            data.endpoints.length === 0 ? (
              <Empty>No endpoint receives events yet.</Empty>
            ) : (
              <Endpoints clientId={clientId} endpoints={data.endpoints} />
            )
          }
        </Answer>
      </section>
    </Page>
  )
}

const Endpoints = ({
  clientId,
  endpoints,
}: {
  clientId: string
  endpoints: readonly Endpoint[]
}): ReactNode => (
  <TableBox label="Table of endpoints">
    <table>
      <thead>
        <tr>
          <th scope="col">Address</th>
          <th scope="col">Events</th>
          <th scope="col">State</th>
          <th scope="col">Changed</th>
        </tr>
      </thead>
      <tbody>
        {endpoints.map((endpoint) => (
          <tr key={endpoint.id}>
            <th scope="row">
              <Link
                to="/$clientId/webhooks/$endpointId"
                params={{ clientId, endpointId: endpoint.id }}
              >
                {endpoint.url}
              </Link>
              {endpoint.description !== '' && <small>{endpoint.description}</small>}
            </th>
            <td>{endpoint.eventTypes.length === 0 ? 'all' : endpoint.eventTypes.join(', ')}</td>
            <td>
              <EndpointStatus endpoint={endpoint} />
            </td>
            <td>
              <Instant at={endpoint.updatedAt} />
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  </TableBox>
)
