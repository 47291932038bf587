import { useInfiniteQuery } from '@tanstack/react-query'
import { useNavigate, useSearch } from '@tanstack/react-router'
import { type ReactNode, useState } from 'react'
import { type ProcessorDifference, differencesQuery, useResolveDifference } from '../api/operate.ts'
import { Answer } from '../ui/answer.tsx'
import { Button } from '../ui/button.tsx'
import { Instant } from '../ui/instant.tsx'
import { More } from '../ui/more.tsx'
import { Page } from '../ui/page.tsx'
import { Empty, Failure } from '../ui/states.tsx'
import { TableBox } from '../ui/table-box.tsx'

/** Differences between the payment processor and our payments. */
export function Differences(): ReactNode {
  const { all: isAll = false } = useSearch({ from: '/operate/differences' })
  const navigate = useNavigate({ from: '/operate/differences' })
  const differences = useInfiniteQuery(differencesQuery(isAll))
  return (
    <Page
      title="Differences"
      about="Where the payment processor and our payments disagree. A comparison runs each day."
    >
      <section className="card" aria-label="Differences">
        <label className="choice">
          <input
            type="checkbox"
            checked={isAll}
            onChange={({ target }) =>
              void navigate({ search: target.checked ? { all: true } : {} })
            }
          />
          Also resolved ones
        </label>
        <Answer query={differences}>
          {({ pages }) => {
            const found = pages.flatMap((page) => page.differences)
            return found.length > 0 ? (
              <DifferenceTable differences={found} />
            ) : (
              <Empty>{isAll ? 'No difference was found yet.' : 'No difference is open.'}</Empty>
            )
          }}
        </Answer>
        <More query={differences} label="Show older" />
      </section>
    </Page>
  )
}

const problems: Readonly<Record<string, string>> = {
  missing_here: 'only the processor has it',
  missing_there: 'only we have it',
  unknown: 'its processor is no longer configured',
  amount: 'the amounts differ',
  currency: 'the currencies differ',
}

interface DifferenceTableProps {
  readonly differences: readonly ProcessorDifference[]
}

const DifferenceTable = ({ differences }: DifferenceTableProps): ReactNode => (
  <TableBox label="Table of differences">
    <table>
      <thead>
        <tr>
          <th scope="col">What</th>
          <th scope="col" className="number">
            Ours
          </th>
          <th scope="col" className="number">
            Processor’s
          </th>
          <th scope="col">Account</th>
          <th scope="col">Found</th>
          <th scope="col">Resolution</th>
        </tr>
      </thead>
      <tbody>
        {differences.map((difference) => (
          <tr key={difference.id}>
            <th scope="row">
              {difference.subject}: {problems[difference.problem] ?? difference.problem}
              <small className="soft">{difference.processorPaymentId}</small>
            </th>
            <td className="number">{unitsOf(difference.ours, difference.currency)}</td>
            <td className="number">{unitsOf(difference.theirs, difference.currency)}</td>
            <td>
              {difference.clientId ?? 'the platform’s own'}
              {difference.plane === 'test' && <span className="badge">test</span>}
            </td>
            <td>
              <Instant at={difference.foundAt} />
            </td>
            <td>
              <Resolution difference={difference} />
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  </TableBox>
)

/** Amounts stay in the smallest unit, because currencies differ in their digits. */
const unitsOf = (amount: string | undefined, currency: string): string =>
  amount === undefined ? 'nothing' : `${amount} smallest units of ${currency.toUpperCase()}`

function Resolution({ difference }: { difference: ProcessorDifference }): ReactNode {
  const [text, setText] = useState('')
  const resolve = useResolveDifference()
  if (difference.resolvedAt !== undefined)
    return (
      <>
        {difference.resolution}
        <small>
          {difference.resolvedBy ?? 'a later comparison'}, <Instant at={difference.resolvedAt} />
        </small>
      </>
    )
  return (
    <form
      className="row"
      onSubmit={(event) => {
        event.preventDefault()
        resolve.mutate({ differenceId: difference.id, resolution: text.trim() })
      }}
    >
      <label>
        What was done about it
        <input
          required
          maxLength={500}
          value={text}
          onChange={(event) => setText(event.target.value)}
        />
      </label>
      <Button type="submit" isSmall disabled={resolve.isPending}>
        Resolve
      </Button>
      {resolve.error && <Failure error={resolve.error} />}
    </form>
  )
}
