import { Link } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import type { Usage } from '../../api/usage.ts'
import { Instant } from '../instant.tsx'
import type { RangeSearch } from './range.ts'
import { type ShareRow, byCost } from './share-table.tsx'

/** The groupings of usage that tables show. */
export const breakdowns = ['pipeline_model', 'user', 'session'] as const
export type Breakdown = (typeof breakdowns)[number]

export const breakdownTexts: Readonly<
  Record<Breakdown, { title: string; of: string; columns: readonly string[] }>
> = {
  pipeline_model: { title: 'Pipelines and models', of: 'Pipeline', columns: ['Model'] },
  user: { title: 'Users', of: 'User', columns: [] },
  session: { title: 'Sessions', of: 'Session, user', columns: ['Pipeline, model', 'Time'] },
}

interface Place {
  readonly clientId: string
  /** The range that links keep. */
  readonly search: RangeSearch
}

/** Returns the rows of a grouping, the costliest first. */
export function toRows(by: Breakdown, usage: Usage, place: Place): ShareRow[] {
  const rows = {
    pipeline_model: () => (usage.byPipelineModel ?? []).map(toPipelineRow),
    user: () => (usage.byUser ?? []).map((row) => toUserRow(row, place)),
    session: () => (usage.bySession ?? []).map((row) => toSessionRow(row, place)),
  }[by]()
  return rows.sort(byCost)
}

const furtherRows = 'All further rows'
const unknown = <span className="soft">unknown</span>

type PipelineRow = NonNullable<Usage['byPipelineModel']>[number]

const toPipelineRow = (row: PipelineRow): ShareRow => {
  const isRest = row.pipeline === 'other' && row.modelId === 'other'
  return {
    key: isRest ? 'other' : JSON.stringify([row.pipeline, row.modelId]),
    name: isRest ? furtherRows : row.pipeline,
    details: [isRest ? '' : <code>{row.modelId}</code>],
    sums: row,
  }
}

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
        <code>{row.sessionId}</code>
        <small>
          <User id={row.externalUserId ?? null} {...place} />
        </small>
      </>
    ),
    details: isRest
      ? ['', '']
      : [
          <>
            {row.pipeline}
            <small>{row.modelId}</small>
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
      {id}
    </Link>
  )
