import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import { usageQuery } from '../api/usage.ts'
import { Answer } from '../ui/answer.tsx'
import { Empty } from '../ui/states.tsx'
import { type Breakdown, breakdownTexts, toRows } from '../ui/usage/breakdown.tsx'
import { type Range, type RangeSearch, toDates } from '../ui/usage/range.ts'
import { ShareTable } from '../ui/usage/share-table.tsx'

interface TopProps {
  readonly clientId: string
  readonly by: Breakdown
  readonly range: Range
  readonly search: RangeSearch
}

const rowsShown = 5

/** The costliest rows of a grouping, and the way to all of them. */
export function Top({ clientId, by, range, search }: TopProps): ReactNode {
  const selection = { dates: toDates(range.current), groupBy: by }
  const usage = useQuery(usageQuery(clientId, selection))
  const { title, head, columns } = breakdownTexts[by]
  return (
    <section className="card" aria-labelledby={`top-${by}`} aria-busy={usage.isPlaceholderData}>
      <div className="head">
        <h2 id={`top-${by}`}>{title}</h2>
        <Link to="/$clientId/usage" params={{ clientId }} search={{ ...search, by }} hash="groups">
          All {title.toLowerCase()}
        </Link>
      </div>
      <Answer query={usage}>
        {(data) => {
          const rows = toRows(by, data, { clientId, search })
          if (rows.length === 0) return <Empty>No ticket was signed in this range.</Empty>
          return (
            <ShareTable
              label={`Table of ${title.toLowerCase()}`}
              head={head}
              columns={columns}
              rows={rows.slice(0, rowsShown)}
              totals={data.totals}
            />
          )
        }}
      </Answer>
    </section>
  )
}
