import { type UseQueryResult, useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import type { Schemas } from '../api/client.ts'
import { newestDecisionsQuery } from '../api/setup.ts'
import { Micros } from '../ui/amount.tsx'
import { Answer } from '../ui/answer.tsx'
import { Instant } from '../ui/instant.tsx'
import { Name } from '../ui/name.tsx'
import { Step, type StepState } from './step.tsx'

type Ticket = Schemas['UsageRequest']

interface TicketStepProps {
  readonly clientId: string
  readonly state: StepState
  readonly ticket: UseQueryResult<Ticket | null>
}

/** Waits for the first ticket. */
export const TicketStep = ({ clientId, state, ticket }: TicketStepProps): ReactNode => (
  <Step number={6} title="First ticket" state={state}>
    <Answer query={ticket} rows={2}>
      {(data) =>
        data === null ? <Waiting clientId={clientId} /> : <Seen clientId={clientId} ticket={data} />
      }
    </Answer>
  </Step>
)

const Seen = ({ clientId, ticket }: { clientId: string; ticket: Ticket }): ReactNode => (
  <>
    <p role="status">
      The newest ticket was signed <Instant at={ticket.time} />
      {ticket.networkFeeUsdMicros !== null && (
        <>
          {' '}
          for <Micros value={ticket.networkFeeUsdMicros} />
        </>
      )}
      . The app works.
    </p>
    <div className="row">
      <Link className="button main-action" to="/$clientId" params={{ clientId }}>
        Overview
      </Link>
      <Link className="button" to="/$clientId/usage" params={{ clientId }}>
        Usage, live
      </Link>
    </div>
  </>
)

function Waiting({ clientId }: { clientId: string }): ReactNode {
  const decisions = useQuery(newestDecisionsQuery(clientId))
  return (
    <>
      <p role="status">
        No ticket has arrived yet. This page looks every few seconds: let the user run a job.
      </p>
      <Answer query={decisions} rows={1}>
        {(found) => <Heard decisions={found} />}
      </Answer>
      <details>
        <summary>Nothing comes?</summary>
        <ul className="steps">
          <li>No answer above: the signer does not ask. Check its webhook flag and its secret.</li>
          <li>
            A refusal above: its text names the reason, and its code explains what to do about it.
          </li>
          <li>
            A permission above, but no ticket: the signer runs without <code>-monitor</code>, or its
            events do not arrive. The operator sees them with <code>./tollgate status</code>.
          </li>
          <li>
            Events that could not become tickets wait in quarantine, where the operator finds why.
          </li>
        </ul>
      </details>
    </>
  )
}

type Heard = Schemas['DecisionList']['decisions']

const Heard = ({ decisions }: { decisions: Heard }): ReactNode =>
  decisions.length === 0 ? (
    <p className="soft">No answer of the webhook about your users is recorded yet.</p>
  ) : (
    <>
      <p>Newest recorded answers of the webhook:</p>
      <ul className="list">
        {decisions.map(({ id, decidedAt, status, code, reason }) => (
          <li key={id}>
            <Instant at={decidedAt} />{' '}
            <span className={status === 200 ? 'badge good' : 'badge bad'}>
              {status} {code}
            </span>{' '}
            {status !== 200 && (
              <>
                <Name>{reason}</Name>{' '}
                <a href={`/errors/${encodeURIComponent(code)}`} aria-label={`About ${code}`}>
                  What to do
                </a>
              </>
            )}
          </li>
        ))}
      </ul>
    </>
  )
