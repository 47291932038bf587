import { useInfiniteQuery, useQuery } from '@tanstack/react-query'
import { Link, useNavigate, useSearch } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import type { Schemas } from '../api/client.ts'
import { appsQuery, sessionQuery } from '../api/queries.ts'
import { Answer } from '../ui/answer.tsx'
import { Instant } from '../ui/instant.tsx'
import { More } from '../ui/more.tsx'
import { Name } from '../ui/name.tsx'
import { Page } from '../ui/page.tsx'
import { Empty } from '../ui/states.tsx'
import { useSearchText } from '../ui/search/search-text.ts'
import { TableBox } from '../ui/table-box.tsx'
import { Invitations } from './invitations.tsx'

type OwnApp = Schemas['OwnApps']['apps'][number]

/** The apps that the account is a member of, and invitations to more. */
export function Apps(): ReactNode {
  const apps = useInfiniteQuery(appsQuery)
  const session = useQuery(sessionQuery)
  return (
    <Page
      title="Apps"
      about="What you may see."
      actions={
        session.data?.canCreateApps && (
          <Link className="button" to="/new">
            Create an app
          </Link>
        )
      }
    >
      <Invitations />
      <section className="card" aria-label="Apps">
        <Answer query={apps}>
          {({ pages }) => {
            const all = pages.flatMap((page) => page.apps)
            return all.length === 0 ? (
              <NoApps canCreate={session.data?.canCreateApps ?? false} />
            ) : (
              <AppList apps={all} />
            )
          }}
        </Answer>
        <More query={apps} label="Show more apps" />
      </section>
    </Page>
  )
}

const NoApps = ({ canCreate }: { canCreate: boolean }): ReactNode => (
  <Empty>
    <p>You are not a member of any app.</p>
    {canCreate ? (
      <p>
        <Link to="/new">Create your first app</Link>, or ask an owner to invite you: the invitation
        shows here.
      </p>
    ) : (
      <p>
        Ask an owner to invite you: the invitation shows here. An operator can create an app:{' '}
        <code>./tollgate app create --name NAME</code>
      </p>
    )}
  </Empty>
)

/** Few apps need no search. */
const searchFrom = 6

function AppList({ apps }: { apps: readonly OwnApp[] }): ReactNode {
  const { search = '' } = useSearch({ from: '/' })
  const navigate = useNavigate({ from: '/' })
  const [text, setText] = useSearchText(search, (sought) => {
    void navigate({
      replace: search !== '',
      resetScroll: false,
      search: sought === '' ? {} : { search: sought },
    })
  })
  const wanted = text.trim().toLowerCase()
  const found = apps.filter(
    ({ name, clientId }) => name.toLowerCase().includes(wanted) || clientId.includes(wanted),
  )
  return (
    <>
      {apps.length >= searchFrom && (
        <label>
          Search
          <input
            type="search"
            value={text}
            onChange={(event) => setText(event.target.value)}
            placeholder="Name or client id"
          />
        </label>
      )}
      {found.length > 0 ? (
        <AppTable apps={found} />
      ) : (
        <Empty>
          No app has “<Name>{text}</Name>” in its name or client id.
        </Empty>
      )}
    </>
  )
}

const AppTable = ({ apps }: { apps: readonly OwnApp[] }): ReactNode => (
  <TableBox label="Table of apps">
    <table>
      <thead>
        <tr>
          <th scope="col">Name</th>
          <th scope="col">Client id</th>
          <th scope="col">Your role</th>
          <th scope="col">Created</th>
        </tr>
      </thead>
      <tbody>
        {apps.map(({ clientId, name, role, isTest, createdAt }) => (
          <tr key={clientId}>
            <th scope="row">
              <Link to="/$clientId" params={{ clientId }}>
                {name}
              </Link>{' '}
              {isTest && <span className="badge">test</span>}
            </th>
            <td>
              <code>{clientId}</code>
            </td>
            <td>{role || 'platform admin'}</td>
            <td>
              <Instant at={createdAt} />
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  </TableBox>
)
