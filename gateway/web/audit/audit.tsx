import { useInfiniteQuery } from '@tanstack/react-query'
import { Link, useParams, useSearch } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import type { Schemas } from '../api/client.ts'
import { type AuditFilter, auditQuery, toAuditQuery } from '../api/queries.ts'
import { useRights } from '../api/rights.ts'
import { Answer } from '../ui/answer.tsx'
import { Instant } from '../ui/instant.tsx'
import { More } from '../ui/more.tsx'
import { Page } from '../ui/page.tsx'
import { Empty } from '../ui/states.tsx'
import { LongTable } from '../ui/table/long-table.tsx'
import { Filter } from './filter.tsx'

/** Who did what in an app, newest first. */
export function Audit(): ReactNode {
  const { clientId } = useParams({ from: '/$clientId/audit' })
  const filter = useSearch({ from: '/$clientId/audit' })
  const { canEdit } = useRights(clientId)
  const audit = useInfiniteQuery(auditQuery(clientId, filter))
  const isFiltered = Object.keys(filter).length > 0
  return (
    <Page
      title="Audit log"
      about="Who did what, newest first."
      actions={
        canEdit && (
          <a className="button" href={exportAddress(clientId, filter)} download>
            {isFiltered ? 'Export these' : 'Export'}
          </a>
        )
      }
    >
      <section className="card" aria-label="Entries">
        <Filter key={JSON.stringify(filter)} filter={filter} />
        <Answer query={audit}>
          {({ pages }) => (
            <Entries pages={pages} hasMore={audit.hasNextPage} isFiltered={isFiltered} />
          )}
        </Answer>
        <More query={audit} label="Show older" />
      </section>
    </Page>
  )
}

function exportAddress(clientId: string, filter: AuditFilter): string {
  const query = new URLSearchParams(toAuditQuery(filter)).toString()
  const path = `/api/v1/apps/${encodeURIComponent(clientId)}/audit/export`
  return query === '' ? path : `${path}?${query}`
}

type Entry = Schemas['AuditLog']['entries'][number]

interface EntriesProps {
  readonly pages: readonly Schemas['AuditLog'][]
  readonly hasMore: boolean
  readonly isFiltered: boolean
}

const Entries = ({ pages, hasMore, isFiltered }: EntriesProps): ReactNode =>
  pages.some(({ entries }) => entries.length > 0) ? (
    <EntryTable pages={pages.map(({ entries }) => entries)} hasMore={hasMore} />
  ) : (
    <Empty>{isFiltered ? 'No entry fits the filter.' : 'Nothing is recorded yet.'}</Empty>
  )

/** A link to the same view with another filter. */
const keep = { from: '/$clientId/audit', to: '.' } as const

const columns = [
  { name: 'When' },
  { name: 'Action' },
  { name: 'By' },
  { name: 'Result' },
  { name: 'Details' },
]

interface EntryTableProps {
  readonly pages: readonly (readonly Entry[])[]
  readonly hasMore: boolean
}

const EntryTable = ({ pages, hasMore }: EntryTableProps): ReactNode => (
  <LongTable
    label="Table of entries"
    columns={columns}
    pages={pages}
    hasMore={hasMore}
    keyOf={idOf}
  >
    {({ createdAt, action, actor, status, details, correlationId }) => (
      <>
        <td>
          <Instant at={createdAt} />
        </td>
        <th scope="row">
          <Link {...keep} search={(filter) => ({ ...filter, action })}>
            {action}
          </Link>
        </th>
        <td>
          <Link {...keep} search={(filter) => ({ ...filter, actor })}>
            <code>{actor}</code>
          </Link>
        </td>
        <td>
          <span className={status === 'success' ? 'badge good' : 'badge bad'}>{status}</span>
        </td>
        <td>
          <details>
            <summary>Show</summary>
            <dl>
              {Object.entries(details).map(([name, value]) => (
                <div key={name}>
                  <dt className="soft">{name}</dt>
                  <dd>
                    <code>{typeof value === 'string' ? value : JSON.stringify(value)}</code>
                  </dd>
                </div>
              ))}
              {correlationId !== null && (
                <div>
                  <dt className="soft">correlation id</dt>
                  <dd>
                    <code>{correlationId}</code>
                  </dd>
                </div>
              )}
            </dl>
          </details>
        </td>
      </>
    )}
  </LongTable>
)

const idOf = ({ id }: Entry): string => id
