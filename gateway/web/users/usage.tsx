import { useInfiniteQuery } from '@tanstack/react-query'
import { Link, useNavigate, useSearch } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import type { Schemas } from '../api/client.ts'
import { type UserRef, sessionsQuery, ticketsQuery } from '../api/users.ts'
import { ExactDollars } from '../ui/amount.tsx'
import { formatCount } from '../ui/amounts.ts'
import { Answer } from '../ui/answer.tsx'
import { Instant } from '../ui/instant.tsx'
import { MonthChoice, formatUtcMonth } from '../ui/month-choice.tsx'
import { More } from '../ui/more.tsx'
import { Name } from '../ui/name.tsx'
import { Empty, Loading } from '../ui/states.tsx'
import { LongTable } from '../ui/table/long-table.tsx'
import { useAppNow } from '../ui/usage/now.ts'
import { Ticket } from './ticket.tsx'

const from = '/$clientId/users/$externalUserId'

/** The tickets or sessions of a user in a UTC month, and the explanation of one ticket. */
export function Usage({ user }: { user: UserRef }): ReactNode {
  const now = useAppNow(user.clientId)
  return now === undefined ? <Loading /> : <Months user={user} present={formatUtcMonth(now)} />
}

function Months({ user, present }: { user: UserRef; present: string }): ReactNode {
  const { month = present, by, ticket } = useSearch({ from })
  const navigate = useNavigate({ from })
  const search = { part: 'usage', month } as const
  return (
    <>
      {ticket !== undefined && <Ticket clientId={user.clientId} eventId={ticket} />}
      <section className="card" aria-label="Tickets and sessions">
        <div className="row">
          <MonthChoice
            month={month}
            latest={present}
            onChange={(wanted) =>
              void navigate({ search: { ...search, month: wanted, ...(by && { by }) } })
            }
          />
          <nav className="tabs" aria-label="Kinds of usage">
            <Link from={from} to="." search={search} aria-current={by ? undefined : 'true'}>
              Tickets
            </Link>
            <Link
              from={from}
              to="."
              search={{ ...search, by: 'session' }}
              aria-current={by ? 'true' : undefined}
            >
              Sessions
            </Link>
          </nav>
        </div>
        {by ? <Sessions user={user} month={month} /> : <Tickets user={user} month={month} />}
      </section>
    </>
  )
}

interface HistoryProps {
  readonly user: UserRef
  readonly month: string
}

function Tickets({ user, month }: HistoryProps): ReactNode {
  const tickets = useInfiniteQuery(ticketsQuery(user, month))
  return (
    <>
      <Answer query={tickets}>
        {({ pages }) =>
          pages.some((page) => page.tickets.length > 0) ? (
            <TicketTable
              pages={pages.map((page) => page.tickets)}
              hasMore={tickets.hasNextPage}
              month={month}
            />
          ) : (
            <Empty>The user signed no ticket in this month.</Empty>
          )
        }
      </Answer>
      <More query={tickets} label="Show older" />
    </>
  )
}

interface TicketTableProps {
  readonly pages: readonly (readonly Schemas['UsageRequest'][])[]
  readonly hasMore: boolean
  readonly month: string
}

const ticketColumns = [
  { name: 'Signed' },
  { name: 'Pipeline and model' },
  { name: 'Fee, wei', isNumber: true },
  { name: 'Network cost', isNumber: true },
  { name: 'Charged to the user', isNumber: true },
  { name: 'Explained' },
]

const TicketTable = ({ pages, hasMore, month }: TicketTableProps): ReactNode => (
  <LongTable
    label="Table of tickets"
    columns={ticketColumns}
    pages={pages}
    hasMore={hasMore}
    keyOf={eventIdOf}
  >
    {(ticket) => (
      <>
        <th scope="row">
          <Instant at={ticket.time} />
        </th>
        <td>
          <Name>{ticket.pipeline}</Name>
          <small>
            <Name>{ticket.modelId}</Name>
          </small>
        </td>
        <td className="number">{BigInt(ticket.feeWei).toLocaleString('en-US')}</td>
        <td className="number">
          <Priced dollars={ticket.networkFeeUsdExact} />
        </td>
        <td className="number">
          <Priced dollars={ticket.endUserBillableUsdExact} />
        </td>
        <td>
          <Link
            from={from}
            to="."
            search={{ part: 'usage', month, ticket: ticket.eventId }}
            resetScroll
            aria-label={`Explain the ticket of ${ticket.time}`}
          >
            Explain
          </Link>
        </td>
      </>
    )}
  </LongTable>
)

const eventIdOf = ({ eventId }: Schemas['UsageRequest']): string => eventId

const Priced = ({ dollars }: { dollars: string | null }): ReactNode =>
  dollars === null ? (
    <span className="soft">waits for a rate</span>
  ) : (
    <ExactDollars value={dollars} />
  )

function Sessions({ user, month }: HistoryProps): ReactNode {
  const sessions = useInfiniteQuery(sessionsQuery(user, month))
  return (
    <>
      <Answer query={sessions}>
        {({ pages }) => {
          const all = pages.flatMap((page) => page.sessions)
          return all.length > 0 ? (
            <SessionTable sessions={all} hasMore={sessions.hasNextPage} />
          ) : (
            <Empty>The user had no session in this month.</Empty>
          )
        }}
      </Answer>
      <More query={sessions} label="Show older" />
    </>
  )
}

const sessionColumns = [
  { name: 'Session' },
  { name: 'Started' },
  { name: 'Ended' },
  { name: 'Pipeline and model' },
  { name: 'Tickets', isNumber: true },
  { name: 'Charged to the user', isNumber: true },
]

interface SessionTableProps {
  readonly sessions: readonly Schemas['UsageSession'][]
  readonly hasMore: boolean
}

const SessionTable = ({ sessions, hasMore }: SessionTableProps): ReactNode => (
  <LongTable
    label="Table of sessions"
    columns={sessionColumns}
    pages={[sessions]}
    hasMore={hasMore}
    keyOf={sessionIdOf}
  >
    {(session) => (
      <>
        <th scope="row">
          <code>{session.sessionId}</code>
        </th>
        <td>
          <Instant at={session.startedAt} />
        </td>
        <td>{session.endedAt === undefined ? 'running' : <Instant at={session.endedAt} />}</td>
        <td>
          <Name>{session.pipeline}</Name>
          <small>
            <Name>{session.modelId}</Name>
          </small>
        </td>
        <td className="number">{formatCount(session.requestCount)}</td>
        <td className="number">
          <ExactDollars value={session.endUserBillableUsdExact} />
        </td>
      </>
    )}
  </LongTable>
)

const sessionIdOf = ({ sessionId }: Schemas['UsageSession']): string => sessionId
