import { useQuery } from '@tanstack/react-query'
import { Link, useNavigate, useParams, useSearch } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import { usageQuery } from '../api/usage.ts'
import { Answer } from '../ui/answer.tsx'
import { Page } from '../ui/page.tsx'
import { SearchForm } from '../ui/search/search-form.tsx'
import { Empty, Loading } from '../ui/states.tsx'
import { type Breakdown, breakdownTexts, breakdowns, toRows } from '../ui/usage/breakdown.tsx'
import { useAppNow } from '../ui/usage/now.ts'
import { type Range, toDates, toRange, widen } from '../ui/usage/range.ts'
import { RangeDates, RangePicker } from '../ui/usage/range-picker.tsx'
import {
  type UsageSearch,
  pickRange,
  withChart,
  withRange,
  withoutTable,
} from '../ui/usage/search.ts'
import { RowPages, ShareTable } from '../ui/usage/share-table.tsx'
import { TimeChart } from '../ui/usage/time-chart.tsx'
import { Totals } from '../ui/usage/totals.tsx'
import { Live } from './live.tsx'
import { Losses } from './losses.tsx'
import { ModelFilter, isOfModel } from './model-filter.tsx'

/** What an app used in a range: figures, a chart, and rows of a grouping; and what it uses now. */
export function Usage(): ReactNode {
  const { clientId } = useParams({ from: '/$clientId/usage' })
  const search = useSearch({ from: '/$clientId/usage' })
  const navigate = useNavigate({ from: '/$clientId/usage' })
  const now = useAppNow(clientId)
  if (now === undefined)
    return (
      <Page title="Usage">
        <Loading />
      </Page>
    )
  const range = toRange(search, now)
  const { user, pipeline, model } = search
  const filter = { user, pipeline, model }
  /** Changes a part of the address. The page of a table begins again. */
  const change = (part: UsageSearch): void => {
    const { page: _, ...rest } = search
    void navigate({ search: { ...rest, ...part }, resetScroll: false })
  }
  return (
    <Page title="Usage" about={<RangeDates range={range} />}>
      <RangePicker
        search={search}
        range={range}
        onChoose={(chosen) =>
          void navigate({ search: withRange(search, chosen), resetScroll: false })
        }
      />
      <SearchForm
        label="Only the user"
        value={user ?? ''}
        placeholder="your id of the user"
        clear="Show all users"
        onSearch={(chosen) => {
          const { user: _, page: __, ...rest } = search
          void navigate({ search: { ...rest, ...(chosen !== '' && { user: chosen }) } })
        }}
      />
      <ModelFilter
        search={search}
        onEnd={(rest) => void navigate({ search: rest, resetScroll: false })}
      />
      <Totals clientId={clientId} range={range} filter={filter} />
      {isOfModel(search) || <Live clientId={clientId} user={user} search={pickRange(search)} />}
      <TimeChart
        clientId={clientId}
        range={range}
        filter={filter}
        search={search}
        onChange={(chart) =>
          void navigate({ search: withChart(search, chart), resetScroll: false })
        }
        linkDay={(day) => (
          <Link
            to="/$clientId/usage"
            params={{ clientId }}
            search={withRange(search, { from: day, to: day })}
          >
            {day}
          </Link>
        )}
      />
      <Groups clientId={clientId} range={range} search={search} change={change} />
    </Page>
  )
}

interface GroupsProps {
  readonly clientId: string
  readonly range: Range
  readonly search: UsageSearch
  readonly change: (part: UsageSearch) => void
}

/** The rows of the chosen grouping. */
function Groups({ clientId, range, search, change }: GroupsProps): ReactNode {
  // The API sums sessions of all models only, and lists losses of all users and models only.
  const choices = [
    ...breakdowns
      .filter((each) => each !== 'session' || !isOfModel(search))
      .map((each) => [each, breakdownTexts[each].title] as const),
    ...(search.user === undefined && !isOfModel(search) ? [['loss', 'Losses'] as const] : []),
  ]
  const by = choices.find(([each]) => each === search.by)?.[0] ?? 'pipeline_model'
  return (
    <section className="card" aria-labelledby="groups">
      <h2 id="groups">{by === 'loss' ? 'Losses' : breakdownTexts[by].title}</h2>
      <div className="segments" role="group" aria-label="Grouping">
        {choices.map(([each, title]) => (
          <button
            key={each}
            type="button"
            aria-pressed={each === by}
            onClick={() => change({ by: each })}
          >
            {title}
          </button>
        ))}
      </div>
      {by === 'loss' ? (
        <Losses clientId={clientId} dates={toDates(widen(range.current))} />
      ) : (
        <Rows key={by} clientId={clientId} by={by} range={range} search={search} change={change} />
      )}
    </section>
  )
}

const pageSize = 50

function Rows({
  clientId,
  by,
  range,
  search,
  change,
}: GroupsProps & { readonly by: Breakdown }): ReactNode {
  const { user, pipeline, model, page = 1 } = search
  const selection = { dates: toDates(range.current), groupBy: by, user, pipeline, model }
  const usage = useQuery(usageQuery(clientId, selection))
  const { title, head, columns } = breakdownTexts[by]
  return (
    <Answer query={usage}>
      {(data) => {
        const rows = toRows(by, data, { clientId, search: withoutTable(search) }).filter(
          ({ sums }) => sums.requestCount > 0,
        )
        if (rows.length === 0) return <Empty>No ticket was signed in this range.</Empty>
        return (
          <>
            <ShareTable
              label={`Table of ${title.toLowerCase()}`}
              head={head}
              columns={columns}
              rows={rows.slice((page - 1) * pageSize, page * pageSize)}
              totals={data.totals}
              isBusy={usage.isPlaceholderData}
            />
            <RowPages
              page={page}
              size={pageSize}
              total={rows.length}
              onPage={(next) => change({ page: next })}
            />
          </>
        )
      }}
    </Answer>
  )
}
