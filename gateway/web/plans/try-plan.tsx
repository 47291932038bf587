import { useNavigate, useSearch } from '@tanstack/react-router'
import { type ReactNode, useState } from 'react'
import { type PlanTerms, type WhatIf, useWhatIf } from '../api/plans.ts'
import { ExactDollars } from '../ui/amount.tsx'
import { formatCount } from '../ui/amounts.ts'
import { Button } from '../ui/button.tsx'
import { Instant } from '../ui/instant.tsx'
import { Failure, Loading } from '../ui/states.tsx'
import { TableBox } from '../ui/table-box.tsx'
import { useAppNow } from '../ui/usage/now.ts'
import { formatUtcDay } from '../ui/usage/range.ts'
import { TrialChart } from './trial-chart.tsx'

const dayMs = 86_400_000

interface TryPlanProps {
  readonly clientId: string
  /** Undefined while the form holds no valid plan. */
  readonly terms: PlanTerms | undefined
}

/** Replays the tickets of a range as if every user had the draft. Nothing is changed. */
export function TryPlan({ clientId, terms }: TryPlanProps): ReactNode {
  const now = useAppNow(clientId)
  return now === undefined ? <Loading /> : <Trial clientId={clientId} terms={terms} now={now} />
}

function Trial({ clientId, terms, now }: TryPlanProps & { readonly now: number }): ReactNode {
  const search = useSearch({ strict: false })
  const navigate = useNavigate()
  const [from, setFrom] = useState(search.from ?? formatUtcDay(now - 30 * dayMs))
  const [to, setTo] = useState(search.to ?? formatUtcDay(now + dayMs))
  const trial = useWhatIf(clientId)
  const isOlder = JSON.stringify(trial.variables?.plan) !== JSON.stringify(terms)
  return (
    <section className="card" aria-labelledby="try-plan">
      <h2 id="try-plan">Try it on past tickets</h2>
      <form
        className="row"
        onSubmit={(event) => {
          event.preventDefault()
          if (!terms) return
          // The address has the range that was tried, so that a reload keeps it.
          void navigate({ to: '.', replace: true, resetScroll: false, search: { from, to } })
          trial.mutate({ from, to, plan: terms })
        }}
      >
        <label>
          From (UTC)
          <input
            type="date"
            required
            value={from}
            onChange={(event) => setFrom(event.target.value)}
          />
        </label>
        <label>
          Before (UTC)
          <input type="date" required value={to} onChange={(event) => setTo(event.target.value)} />
        </label>
        <Button
          onClick={() => {
            const { first, next } = lastMonth(now)
            setFrom(first)
            setTo(next)
          }}
        >
          Last month
        </Button>
        <Button type="submit" disabled={!terms || trial.isPending}>
          {trial.isPending ? 'Replaying …' : 'Try'}
        </Button>
      </form>
      <p className="soft">As if every user had been on this plan. It changes nothing.</p>
      {trial.error && <Failure error={trial.error} />}
      {trial.data && isOlder && (
        <p className="notice">The terms have changed since. Try them again.</p>
      )}
      {trial.data && <Result whatIf={trial.data} />}
    </section>
  )
}

/** The first day of the UTC month before, and the first day after it. */
function lastMonth(now: number): { first: string; next: string } {
  const date = new Date(now)
  const [year, month] = [date.getUTCFullYear(), date.getUTCMonth()]
  return {
    first: formatUtcDay(Date.UTC(year, month - 1)),
    next: formatUtcDay(Date.UTC(year, month)),
  }
}

const figures = [
  ['Revenue', 'revenueUsdExact'],
  ['Margin', 'marginUsdExact'],
  ['Included usage', 'includedUsdExact'],
  ['Included and not used', 'includedUnusedUsdExact'],
  ['Overage', 'overageUsdExact'],
] as const

const Result = ({ whatIf: { total, runOuts, moreRunOuts } }: { whatIf: WhatIf }): ReactNode => (
  <div className="stack" role="status">
    <p>
      Users with tickets: {formatCount(total.users)}, of whom {formatCount(total.usersPayingMore)}{' '}
      would pay more, {formatCount(total.usersPayingLess)} less and{' '}
      {formatCount(total.usersPayingSame)} the same. Tickets:{' '}
      {BigInt(total.tickets).toLocaleString('en-US')}.
    </p>
    <TrialChart
      pairs={figures.map(([name, field]) => ({
        name,
        booked: total.today[field],
        trial: total.whatIf[field],
      }))}
    />
    <TableBox label="Table of the trial">
      <table>
        <thead>
          <tr>
            <th scope="col">Figure</th>
            <th scope="col" className="number">
              As booked
            </th>
            <th scope="col" className="number">
              With this plan
            </th>
          </tr>
        </thead>
        <tbody>
          {figures.map(([name, field]) => (
            <tr key={field}>
              <th scope="row">{name}</th>
              <td className="number">
                <ExactDollars value={total.today[field]} />
              </td>
              <td className="number">
                <ExactDollars value={total.whatIf[field]} />
              </td>
            </tr>
          ))}
          <tr>
            <th scope="row">Users who run out</th>
            <td className="number">{total.today.usersRunOut}</td>
            <td className="number">{total.whatIf.usersRunOut}</td>
          </tr>
        </tbody>
      </table>
    </TableBox>
    {runOuts.length > 0 && (
      <details>
        <summary>Users who would have run out</summary>
        <ul className="list">
          {runOuts.slice(0, 100).map(({ externalUserId, at }) => (
            <li key={externalUserId}>
              {externalUserId}, <Instant at={at} />
            </li>
          ))}
        </ul>
        {runOuts.length + moreRunOuts > 100 && (
          <p className="soft">and {runOuts.length + moreRunOuts - 100} more</p>
        )}
      </details>
    )}
  </div>
)
