import { type ReactNode, useState } from 'react'
import { useStatement } from '../api/money.ts'
import { Button } from '../ui/button.tsx'
import { Failure } from '../ui/states.tsx'
import { storeCsv } from '../ui/table/store-csv.ts'

/** The month before this one, in UTC: the newest with a statement. */
function lastMonth(): string {
  const now = new Date()
  return new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth() - 1)).toISOString().slice(0, 7)
}

/** The statement of a month that has ended, as a file and as a page to print. */
export function Statements({ clientId }: { clientId: string }): ReactNode {
  const [month, setMonth] = useState(lastMonth)
  const statement = useStatement(clientId)
  return (
    <section className="card" aria-labelledby="statements">
      <h2 id="statements">Statement of a month</h2>
      <form
        className="row"
        onSubmit={(event) => {
          event.preventDefault()
          statement.mutate(month, { onSuccess: (csv) => storeCsv(`statement-${month}.csv`, csv) })
        }}
      >
        <label>
          Month (UTC)
          <input
            type="month"
            required
            pattern="\d{4}-\d{2}"
            placeholder="2026-10"
            value={month}
            onChange={(event) => setMonth(event.target.value)}
          />
        </label>
        <Button type="submit" disabled={statement.isPending}>
          {statement.isPending ? 'Reading …' : 'Download CSV'}
        </Button>
        {/^\d{4}-\d{2}$/.test(month) && (
          <a
            className="button"
            href={`/apps/${clientId}/billing/statements/${month}`}
            target="_blank"
            rel="noreferrer"
          >
            Page to print
          </a>
        )}
      </form>
      {statement.error && <Failure error={statement.error} />}
    </section>
  )
}
