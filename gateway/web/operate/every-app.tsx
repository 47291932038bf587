import { useInfiniteQuery } from '@tanstack/react-query'
import { Link, useNavigate, useSearch } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import { type EveryApp as App, everyAppQuery } from '../api/every-app.ts'
import { Answer } from '../ui/answer.tsx'
import { Instant } from '../ui/instant.tsx'
import { More } from '../ui/more.tsx'
import { Name } from '../ui/name.tsx'
import { Page } from '../ui/page.tsx'
import { SearchForm } from '../ui/search/search-form.tsx'
import { Empty } from '../ui/states.tsx'
import { LongTable } from '../ui/table/long-table.tsx'

/** All apps of the deployment, with their owners. */
export function EveryApp(): ReactNode {
  const { search = '' } = useSearch({ from: '/operate/apps' })
  const apps = useInfiniteQuery(everyAppQuery(search))
  return (
    <Page title="All apps" about="Every app of this deployment, with its owners and quotas.">
      <section className="card" aria-label="All apps">
        <Search search={search} />
        <Answer query={apps} rows={6}>
          {({ pages }) => {
            const found = pages.flatMap((page) => page.apps)
            return found.length > 0 ? (
              <AppTable apps={found} hasMore={apps.hasNextPage} />
            ) : (
              <Empty>
                {search === ''
                  ? 'There is no app yet.'
                  : `No app has “${search}” in its name, or as its client id.`}
              </Empty>
            )
          }}
        </Answer>
        <More query={apps} label="Show newer" />
      </section>
    </Page>
  )
}

function Search({ search }: { search: string }): ReactNode {
  const navigate = useNavigate({ from: '/operate/apps' })
  return (
    <SearchForm
      label="Part of a name, or a client id"
      value={search}
      action="Search"
      clear="Show all"
      onSearch={(next) => void navigate({ search: next === '' ? {} : { search: next } })}
    />
  )
}

const columns = [
  { name: 'Name' },
  { name: 'Client id' },
  { name: 'Owners' },
  { name: 'Created' },
  { name: 'Quotas' },
]

interface AppTableProps {
  readonly apps: readonly App[]
  readonly hasMore: boolean
}

const AppTable = ({ apps, hasMore }: AppTableProps): ReactNode => (
  <LongTable
    label="Table of all apps"
    columns={columns}
    pages={[apps]}
    hasMore={hasMore}
    keyOf={clientIdOf}
  >
    {(app) => (
      <>
        <th scope="row">
          <Link to="/$clientId" params={{ clientId: app.clientId }}>
            <Name>{app.name}</Name>
          </Link>{' '}
          <Kinds app={app} />
        </th>
        <td>
          <code>{app.clientId}</code>
        </td>
        <td>
          {app.ownerEmails.length === 0 && <span className="soft">none</span>}
          {app.ownerEmails.map((email) => (
            <div key={email}>
              <Name>{email}</Name>
            </div>
          ))}
        </td>
        <td>
          <Instant at={app.createdAt} />
        </td>
        <td>
          <Link
            to="/operate/apps/$clientId"
            params={{ clientId: app.clientId }}
            aria-label={`Quotas of ${app.name}`}
          >
            Quotas
          </Link>
        </td>
      </>
    )}
  </LongTable>
)

const clientIdOf = ({ clientId }: App): string => clientId

const Kinds = ({ app: { status, isTest, isPlatformApp } }: { app: App }): ReactNode => (
  <>
    {status === 'disabled' && <span className="badge bad">disabled</span>}
    {isTest && <span className="badge">test</span>}
    {isPlatformApp && <span className="badge">platform</span>}
  </>
)
