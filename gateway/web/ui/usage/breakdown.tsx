import { Link } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import type { Usage } from '../../api/usage.ts'
import { Instant } from '../instant.tsx'
import { Name } from '../name.tsx'
import type { UsageSearch } from './search.ts'
import { type ShareRow, byCost } from './share-table.tsx'

/** The groupings of usage that tables show. */
export const breakdowns = ['pipeline_model', 'user', 'session'] as const
export type Breakdown = (typeof breakdowns)[number]

export const breakdownTexts: Readonly<
  Record<Breakdown, { title: string; head: string; columns: readonly string[] }>
> = {
  pipeline_model: { title: 'Pipelines and models', head: 'Pipeline', columns: ['Model'] },
  user: { title: 'Users', head: 'User', columns: [] },
  session: { title: 'Sessions', head: 'Session, user', columns: ['Pipeline, model', 'Time'] },
}

interface Place {
  readonly clientId: string
  /** The range, chart, user, pipeline and model that links keep. */
  readonly search: UsageSearch
}

/** Returns the rows of a grouping, the costliest first. */
export function toRows(by: Breakdown, usage: Usage, place: Place): ShareRow[] {
  const rows = {
    pipeline_model: () => (usage.byPipelineModel ?? []).map((row) => toPipelineRow(row, place)),
    user: () => (usage.byUser ?? []).map((row) => toUserRow(row, place)),
    session: () => (usage.bySession ?? []).map((row) => toSessionRow(row, place)),
  }[by]()
  return rows.sort(byCost)
}

const furtherRows = 'All further rows'
const unknown = <span className="soft">unknown</span>

type PipelineRow = NonNullable<Usage['byPipelineModel']>[number]

const toPipelineRow = (row: PipelineRow, place: Place): ShareRow => {
  const { pipeline, modelId } = row
  if (pipeline === 'other' && modelId === 'other')
    return { key: 'other', name: furtherRows, details: [''], sums: row }
  return {
    key: JSON.stringify([pipeline, modelId]),
    name: <Filter {...place} by="pipeline_model" part={{ pipeline }} />,
    details: [
      <code key="model">
        <Filter {...place} by="user" part={{ pipeline, model: modelId }} />
      </code>,
    ],
    sums: row,
  }
}

interface FilterProps extends Place {
  readonly by: Breakdown
  readonly part: { readonly pipeline: string; readonly model?: string }
}

/** A link from a pipeline or model to Usage, filtered by it. */
const Filter = ({ clientId, search, by, part }: FilterProps): ReactNode => (
  <Link to="/$clientId/usage" params={{ clientId }} search={{ ...search, ...part, by }}>
    <Name>{part.model ?? part.pipeline}</Name>
  </Link>
)

type UserRow = NonNullable<Usage['byUser']>[number]

const toUserRow = (row: UserRow, place: Place): ShareRow => ({
  key: row.endUserId,
  name:
    row.endUserId === 'other' ? furtherRows : <User id={row.externalUserId ?? null} {...place} />,
  sums: row,
})

type SessionRow = NonNullable<Usage['bySession']>[number]

const toSessionRow = (row: SessionRow, place: Place): ShareRow => {
  const isRest = row.sessionId === 'other'
  return {
    key: isRest ? 'other' : `${row.endUserId} ${row.sessionId} ${row.pipeline} ${row.modelId}`,
    name: isRest ? (
      furtherRows
    ) : (
      <>
        <code>
          <Name>{row.sessionId}</Name>
        </code>
        <small>
          <User id={row.externalUserId ?? null} {...place} />
        </small>
      </>
    ),
    details: isRest
      ? ['', '']
      : [
          <>
            <Name>{row.pipeline}</Name>
            <small>
              <Name>{row.modelId}</Name>
            </small>
          </>,
          row.firstAt !== undefined && row.lastAt !== undefined && (
            <>
              <Instant at={row.firstAt} />
              <small>
                until <Instant at={row.lastAt} />
              </small>
            </>
          ),
        ],
    sums: row,
  }
}

/** A user's id, which leads to what the user used in the range. */
const User = ({ id, clientId, search }: Place & { id: string | null }): ReactNode =>
  id === null ? (
    unknown
  ) : (
    <Link
      to="/$clientId/usage"
      params={{ clientId }}
      search={{ ...search, user: id, by: 'pipeline_model' }}
    >
      <Name>{id}</Name>
    </Link>
  )
