import { useInfiniteQuery } from '@tanstack/react-query'
import type { ReactNode } from 'react'
import type { Schemas } from '../api/client.ts'
import { lossQuery } from '../api/usage.ts'
import { Micros } from '../ui/amount.tsx'
import { formatCount } from '../ui/amounts.ts'
import { Answer } from '../ui/answer.tsx'
import { Instant } from '../ui/instant.tsx'
import { More } from '../ui/more.tsx'
import { Empty } from '../ui/states.tsx'
import { LongTable } from '../ui/table/long-table.tsx'

type Loss = Schemas['UsageLoss']

interface LossesProps {
  readonly clientId: string
  readonly dates: { readonly startDate: string; readonly endDate: string }
}

/** Tickets that never arrived, and calls without a ticket, of sessions that began in the range. */
export function Losses({ clientId, dates }: LossesProps): ReactNode {
  const losses = useInfiniteQuery(lossQuery(clientId, dates))
  return (
    <>
      <p className="soft">
        Of sessions that began in the range. Lost tickets are signed but never arrived; they are
        estimated, not charged.
      </p>
      <Answer query={losses}>
        {({ pages: [first, ...further] }) =>
          first && (
            <>
              <CallFacts calls={first.calls} />
              <Sessions
                sessions={[first, ...further].flatMap(({ sessions }) => sessions)}
                hasMore={losses.hasNextPage}
              />
            </>
          )
        }
      </Answer>
      <More query={losses} label="Show older" />
    </>
  )
}

function CallFacts({ calls }: { calls: Loss['calls'] }): ReactNode {
  const facts = [
    ['Allowed calls', calls.authorisedCount, 'up to', calls.authorisedUsdMicros],
    ['With a ticket', calls.ticketedCount, 'cost', calls.ticketedUsdMicros],
    ['Signed, ticket lost', calls.lostCount, 'up to', calls.lostUsdMicros],
    ['Lost, charged as an estimate', calls.chargedCount, 'up to', calls.chargedUsdMicros],
    ['Never signed, released', calls.releasedCount, 'up to', calls.releasedUsdMicros],
    ['Ticket came late', calls.lateCount, 'up to', calls.lateUsdMicros],
  ] as const
  return (
    <dl className="facts">
      {facts.map(([label, count, bound, micros]) => (
        <div key={label}>
          <dt>{label}</dt>
          <dd>
            {formatCount(count)}{' '}
            <span className="soft">
              {bound} <Micros value={micros} />
            </span>
          </dd>
        </div>
      ))}
    </dl>
  )
}

type LostSession = Loss['sessions'][number]

const columns = [
  { name: 'Session' },
  { name: 'User' },
  { name: 'Began' },
  { name: 'Arrived', isNumber: true },
  { name: 'Lost', isNumber: true },
  { name: 'Forked', isNumber: true },
  { name: 'Late', isNumber: true },
  { name: 'Estimated cost', isNumber: true },
]

interface SessionsProps {
  readonly sessions: readonly LostSession[]
  readonly hasMore: boolean
}

const Sessions = ({ sessions, hasMore }: SessionsProps): ReactNode =>
  sessions.length === 0 ? (
    <Empty>No session of this range lost a ticket.</Empty>
  ) : (
    <LongTable
      label="Table of losses"
      columns={columns}
      pages={[sessions]}
      hasMore={hasMore}
      keyOf={keyOf}
    >
      {(session) => (
        <>
          <th scope="row">
            <code>{session.sessionId}</code>
          </th>
          <td>{session.externalUserId ?? <span className="soft">unknown</span>}</td>
          <td>
            <Instant at={session.startedAt} />
          </td>
          <td className="number">{formatCount(session.requestCount)}</td>
          <td className="number">{formatCount(session.lostCount)}</td>
          <td className="number">{formatCount(session.forkedCount)}</td>
          <td className="number">{formatCount(session.lateCount)}</td>
          <td className="number">
            {session.estimatedUsdMicros === null ? (
              'not priced yet'
            ) : (
              <Micros value={session.estimatedUsdMicros} />
            )}
          </td>
        </>
      )}
    </LongTable>
  )

const keyOf = ({ sessionId, externalUserId }: LostSession): string =>
  `${sessionId} ${externalUserId}`
