import { useQuery } from '@tanstack/react-query'
import { Link, useSearch } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import type { Schemas } from '../api/client.ts'
import { ticketQuery } from '../api/users.ts'
import { Answer } from '../ui/answer.tsx'
import { Instant } from '../ui/instant.tsx'
import { Name } from '../ui/name.tsx'

const from = '/$clientId/users/$externalUserId'

interface TicketProps {
  readonly clientId: string
  readonly eventId: string
}

/** How one ticket was priced and charged, to check with a pocket calculator. */
export function Ticket({ clientId, eventId }: TicketProps): ReactNode {
  const { month } = useSearch({ from })
  const ticket = useQuery(ticketQuery(clientId, eventId))
  return (
    <section className="card" aria-labelledby="ticket">
      <div className="head">
        <h2 id="ticket">One ticket, explained</h2>
        <Link
          className="button small"
          from={from}
          to="."
          search={{ part: 'usage', ...(month !== undefined && { month }) }}
        >
          Close
        </Link>
      </div>
      <Answer query={ticket}>
        {(data) => (
          <>
            <Facts ticket={data} />
            <ol className="steps" aria-label="Calculation">
              {data.formula.map((line) => (
                <li key={line}>
                  <code>{line}</code>
                </li>
              ))}
            </ol>
            {data.sale !== undefined && (
              <p>
                <Link to="/$clientId/receipts" params={{ clientId }} search={{ ticket: eventId }}>
                  Check its signed receipt
                </Link>
              </p>
            )}
          </>
        )}
      </Answer>
    </section>
  )
}

function Facts({ ticket }: { ticket: Schemas['Ticket'] }): ReactNode {
  const { sale } = ticket
  return (
    <dl className="facts">
      <div>
        <dt>Signed</dt>
        <dd>
          <Instant at={ticket.signedAt} />
        </dd>
      </div>
      <div>
        <dt>Pipeline and model</dt>
        <dd>
          <Name>{ticket.pipeline}</Name>, <Name>{ticket.modelId}</Name>
        </dd>
      </div>
      <div>
        <dt>Event id</dt>
        <dd>
          <code>{ticket.eventId}</code>
        </dd>
      </div>
      <div>
        <dt>Session, call</dt>
        <dd>
          <code>{ticket.sessionId}</code>, {ticket.sequenceNumber}
        </dd>
      </div>
      {sale === undefined ? (
        <div>
          <dt>Price</dt>
          <dd>The ticket waits for a rate. It is not charged yet.</dd>
        </div>
      ) : (
        <SaleFacts sale={sale} />
      )}
    </dl>
  )
}

function SaleFacts({ sale }: { sale: NonNullable<Schemas['Ticket']['sale']> }): ReactNode {
  const { networkCostUsd, retailCostUsd, ownerChargeUsd, rate, plan, charge } = sale
  const amounts: readonly (readonly [string, string])[] = [
    ['Network cost', networkCostUsd],
    ['Charged to the user', retailCostUsd],
    ['Charged to the owner', ownerChargeUsd],
  ]
  return (
    <>
      {amounts.map(([name, amount]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{amount} USD</dd>
        </div>
      ))}
      <div>
        <dt>Rate</dt>
        <dd>
          {rate.usdPerEth} USD for one ETH, <Instant at={rate.observedAt} />
        </dd>
      </div>
      {plan && (
        <div>
          <dt>Plan</dt>
          <dd>
            <Name>{plan.name}</Name>, version {plan.version}
          </dd>
        </div>
      )}
      {charge && (
        <div>
          <dt>Booked</dt>
          <dd>
            <Instant at={charge.bookedAt} />
          </dd>
        </div>
      )}
    </>
  )
}
