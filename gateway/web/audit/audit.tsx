import { useInfiniteQuery } from '@tanstack/react-query'
import { useNavigate, useParams, useSearch } from '@tanstack/react-router'
import { type ReactNode, useState } from 'react'
import type { Schemas } from '../api/client.ts'
import { auditQuery } from '../api/queries.ts'
import { useRights } from '../api/rights.ts'
import { Answer } from '../ui/answer.tsx'
import { Button } from '../ui/button.tsx'
import { Instant } from '../ui/instant.tsx'
import { More } from '../ui/more.tsx'
import { Page } from '../ui/page.tsx'
import { Empty } from '../ui/states.tsx'
import { LongTable } from '../ui/table/long-table.tsx'

/** Who did what in an app, newest first. */
export function Audit(): ReactNode {
  const { clientId } = useParams({ from: '/$clientId/audit' })
  const { action } = useSearch({ from: '/$clientId/audit' })
  const { canEdit } = useRights(clientId)
  const audit = useInfiniteQuery(auditQuery(clientId, action))
  return (
    <Page
      title="Audit log"
      about="Who did what, newest first."
      actions={
        canEdit && (
          <a
            className="button"
            href={`/api/v1/apps/${encodeURIComponent(clientId)}/audit/export`}
            download
          >
            Export
          </a>
        )
      }
    >
      <section className="card" aria-label="Entries">
        <Filter key={action ?? ''} action={action ?? ''} />
        <Answer query={audit}>
          {({ pages }) => <Entries pages={pages} hasMore={audit.hasNextPage} action={action} />}
        </Answer>
        <More query={audit} label="Show older" />
      </section>
    </Page>
  )
}

function Filter({ action }: { action: string }): ReactNode {
  const navigate = useNavigate({ from: '/$clientId/audit' })
  const [text, setText] = useState(action)
  const show = (wanted: string): void =>
    void navigate({ search: wanted === '' ? {} : { action: wanted } })
  return (
    <form
      className="row"
      onSubmit={(event) => {
        event.preventDefault()
        show(text.trim())
      }}
    >
      <label>
        Action
        <input
          type="search"
          value={text}
          maxLength={100}
          placeholder="api_key_created"
          onChange={(event) => setText(event.target.value)}
        />
      </label>
      <Button type="submit">Show</Button>
      {action !== '' && <Button onClick={() => show('')}>Show all</Button>}
    </form>
  )
}

type Entry = Schemas['AuditLog']['entries'][number]

interface EntriesProps {
  readonly pages: readonly Schemas['AuditLog'][]
  readonly hasMore: boolean
  readonly action: string | undefined
}

const Entries = ({ pages, hasMore, action }: EntriesProps): ReactNode =>
  pages.some(({ entries }) => entries.length > 0) ? (
    <EntryTable pages={pages.map(({ entries }) => entries)} hasMore={hasMore} />
  ) : (
    <Empty>{action === undefined ? 'Nothing is recorded yet.' : `Nobody did “${action}”.`}</Empty>
  )

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
        <th scope="row">{action}</th>
        <td>
          <code>{actor}</code>
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
