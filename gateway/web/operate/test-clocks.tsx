import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import { type MovedClock, movedClocksMax, movedClocksQuery } from '../api/operate.ts'
import { formatCount } from '../ui/amounts.ts'
import { Answer } from '../ui/answer.tsx'
import { Instant } from '../ui/instant.tsx'
import { Name } from '../ui/name.tsx'
import { Page } from '../ui/page.tsx'
import { Empty } from '../ui/states.tsx'
import { LongTable } from '../ui/table/long-table.tsx'

/** The test apps whose clocks were moved ahead. */
export function TestClocks(): ReactNode {
  const clocks = useQuery(movedClocksQuery)
  return (
    <Page title="Test clocks" about="Test apps whose clocks are ahead of real time.">
      <section className="card" aria-label="Test clocks">
        <Answer query={clocks}>
          {({ clocks: moved }) =>
            moved.length === 0 ? <Empty>No clock was moved.</Empty> : <Clocks clocks={moved} />
          }
        </Answer>
      </section>
    </Page>
  )
}

const columns = [
  { name: 'App' },
  { name: 'Its time' },
  { name: 'Ahead', isNumber: true },
  { name: 'Moved last' },
  { name: 'Moves', isNumber: true },
]

const Clocks = ({ clocks }: { clocks: readonly MovedClock[] }): ReactNode => (
  <LongTable
    label="Table of test clocks"
    {...(clocks.length >= movedClocksMax && {
      caption: `The ${formatCount(movedClocksMax)} clocks that are furthest ahead.`,
    })}
    columns={columns}
    pages={[clocks]}
    hasMore={false}
    keyOf={({ clientId }) => clientId}
  >
    {({ clientId, name, now, aheadMs, movedAt, moves }) => (
      <>
        <th scope="row">
          <Link to="/$clientId/settings" params={{ clientId }}>
            <Name>{name}</Name>
          </Link>
          <small className="soft">{clientId}</small>
        </th>
        <td>
          <Instant at={now} />
        </td>
        <td className="number">{formatAhead(Number(aheadMs))}</td>
        <td>
          <Instant at={movedAt} />
        </td>
        <td className="number">{formatCount(moves)}</td>
      </>
    )}
  </LongTable>
)

const dayMs = 86_400_000
const hourMs = 3_600_000
const minuteMs = 60_000

/** Rounds down to hours; a clock that is less than an hour ahead shows minutes or seconds. */
function formatAhead(ms: number): string {
  if (ms < minuteMs) return `${Math.floor(ms / 1_000)} s`
  if (ms < hourMs) return `${Math.floor(ms / minuteMs)} min`
  const hours = Math.floor((ms % dayMs) / hourMs)
  const days = Math.floor(ms / dayMs)
  return days === 0 ? `${hours} h` : `${formatCount(days)} d ${hours} h`
}
