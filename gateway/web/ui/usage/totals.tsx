import { useQuery } from '@tanstack/react-query'
import type { ReactNode } from 'react'
import { type Usage, type UsageFilter, pastUsageQuery, usageQuery } from '../../api/usage.ts'
import { formatCount } from '../amounts.ts'
import { Answer } from '../answer.tsx'
import { toAttos } from '../attos.ts'
import { formatExactWei, formatWei } from '../long-amounts.ts'
import { describeChange } from './change.ts'
import { type FigureName, exactFigure, figureNames, figures, formatFigure } from './figures.ts'
import { type Range, toDates } from './range.ts'

interface TotalsProps {
  readonly clientId: string
  readonly range: Range
  readonly filter?: UsageFilter
}

/** The figures of a range, each with its change since the range before. */
export function Totals({
  clientId,
  range: { current, before },
  filter = {},
}: TotalsProps): ReactNode {
  const dates = toDates(current)
  const now = useQuery(usageQuery(clientId, { dates, groupBy: 'none', ...filter }))
  const past = useQuery(
    pastUsageQuery(clientId, { dates: toDates(before), groupBy: 'none', ...filter }),
  )
  return (
    <Answer query={now} rows={3}>
      {({ totals }) => (
        <dl className="stats" aria-busy={now.isPlaceholderData || past.isPlaceholderData}>
          {figureNames.map((name) => (
            <Total key={name} name={name} totals={totals} before={past.data?.totals} />
          ))}
          {filter.user === undefined && (
            <ActiveUsers clientId={clientId} range={{ current, before }} filter={filter} />
          )}
        </dl>
      )}
    </Answer>
  )
}

type Sum = Usage['totals']

interface TotalProps {
  readonly name: FigureName
  readonly totals: Sum
  readonly before: Sum | undefined
}

function Total({ name, totals, before }: TotalProps): ReactNode {
  const { label, read } = figures[name]
  return (
    <div>
      <dt>{label}</dt>
      <dd>
        <span title={exactFigure(name, totals)}>{formatFigure(name, totals)}</span>
        {before && (
          <small>
            {before.requestCount === 0
              ? 'no tickets before'
              : withBefore(describeChange(read(totals), read(before)), formatFigure(name, before))}
          </small>
        )}
        {name === 'network' && <Eth value={totals.totalFeeEth} />}
        {name === 'cut' && totals.platformCutPercent !== null && (
          <small>now {totals.platformCutPercent} %</small>
        )}
      </dd>
    </div>
  )
}

/** An amount in ETH, whose 18 digits show on hover. */
function Eth({ value }: { value: string }): ReactNode {
  const wei = toAttos(value).toString()
  return <small title={formatExactWei(wei)}>{formatWei(wei)}</small>
}

/** Joins a change and the earlier figure. */
const withBefore = (change: string, earlier: string): string =>
  change === '' ? `${earlier} before` : `${change}, ${earlier} before`

/** Users with at least one ticket in the range. */
function ActiveUsers({
  clientId,
  range: { current, before: earlier },
  filter,
}: {
  clientId: string
  range: Pick<Range, 'current' | 'before'>
  filter: UsageFilter
}): ReactNode {
  const by = { ...filter, groupBy: 'user' } as const
  const now = useQuery(usageQuery(clientId, { ...by, dates: toDates(current) }))
  const past = useQuery(pastUsageQuery(clientId, { ...by, dates: toDates(earlier) }))
  const [count, before] = [now.data, past.data].map((usage) => usage && countUsers(usage))
  return (
    <div>
      <dt>Active users</dt>
      <dd>
        <span>{count === undefined ? (now.error ? 'unknown' : '…') : showUsers(count)}</span>
        {count && before && (
          <small>
            {before.count === 0
              ? 'no users before'
              : withBefore(
                  describeChange(BigInt(count.count), BigInt(before.count)),
                  showUsers(before),
                )}
          </small>
        )}
      </dd>
    </div>
  )
}

interface UserCount {
  readonly count: number
  /** Whether users beyond the limit of rows are not counted. */
  readonly isLeast: boolean
}

function countUsers({ byUser = [] }: Usage): UserCount {
  const active = byUser.filter(
    ({ endUserId, requestCount }) =>
      requestCount > 0 && endUserId !== 'other' && endUserId !== 'unknown',
  )
  return {
    count: active.length,
    isLeast: byUser.some(({ endUserId }) => endUserId === 'other'),
  }
}

const showUsers = ({ count, isLeast }: UserCount): string =>
  `${isLeast ? 'more than ' : ''}${formatCount(count)}`
