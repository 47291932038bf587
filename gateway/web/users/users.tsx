import { useInfiniteQuery } from '@tanstack/react-query'
import { Link, useNavigate, useParams, useSearch } from '@tanstack/react-router'
import { type ReactNode, useMemo } from 'react'
import type { Schemas } from '../api/client.ts'
import { useRights } from '../api/rights.ts'
import { type UserFilter, usersQuery } from '../api/users.ts'
import { Answer } from '../ui/answer.tsx'
import { Button } from '../ui/button.tsx'
import { Instant } from '../ui/instant.tsx'
import { More } from '../ui/more.tsx'
import { Name } from '../ui/name.tsx'
import { Page } from '../ui/page.tsx'
import { Empty, Loading } from '../ui/states.tsx'
import { useSearchText } from '../ui/search/search-text.ts'
import { LongTable } from '../ui/table/long-table.tsx'
import { CreateUser } from './create-user.tsx'
import { UserStatus, statuses } from './status.tsx'

/** The users of an app, the oldest first. */
export function Users(): ReactNode {
  const { clientId } = useParams({ from: '/$clientId/users' })
  const filter = useSearch({ from: '/$clientId/users' })
  const { canEdit } = useRights(clientId)
  const users = useInfiniteQuery(usersQuery(clientId, filter))
  return (
    <Page title="Users" about="Everybody who may spend through this app, the oldest first.">
      {canEdit && <CreateUser clientId={clientId} />}
      <section className="card" aria-label="Users" aria-busy={users.isPlaceholderData}>
        <Filter filter={filter} />
        <Answer query={users}>
          {({ pages }) =>
            pages.some((page) => page.users.length > 0) ? (
              <UserTable clientId={clientId} pages={pages} hasMore={users.hasNextPage} />
            ) : users.isPlaceholderData ? (
              // It is the answer to the filter before.
              <Loading />
            ) : (
              <NoUsers filter={filter} />
            )
          }
        </Answer>
        <More query={users} label="Show more" />
      </section>
    </Page>
  )
}

/** Searches while the reader types. The address has what is shown. */
function Filter({ filter: { status, user = '' } }: { filter: UserFilter }): ReactNode {
  const navigate = useNavigate({ from: '/$clientId/users' })
  const [text, setText] = useSearchText(user, (wanted) => {
    void navigate({
      // The first letters make an entry of the history, and the next ones change it.
      replace: user !== '',
      resetScroll: false,
      search: ({ status }) => ({
        ...(status && { status }),
        ...(wanted !== '' && { user: wanted }),
      }),
    })
  })
  return (
    <form className="row" role="search" onSubmit={(event) => event.preventDefault()}>
      <label>
        Beginning of the external id or e-mail address
        <input
          type="search"
          maxLength={200}
          autoComplete="off"
          spellCheck={false}
          value={text}
          onChange={(event) => setText(event.target.value)}
        />
      </label>
      <label>
        Status
        <select
          value={status ?? ''}
          onChange={(event) => {
            const chosen = statuses.find((one) => one === event.target.value)
            void navigate({
              search: ({ user }) => ({ ...(chosen && { status: chosen }), ...(user && { user }) }),
            })
          }}
        >
          <option value="">all</option>
          {statuses.map((one) => (
            <option key={one}>{one}</option>
          ))}
        </select>
      </label>
      {(user !== '' || status !== undefined) && (
        <Button onClick={() => void navigate({ search: {} })}>Show all</Button>
      )}
    </form>
  )
}

function NoUsers({ filter: { user, status } }: { filter: UserFilter }): ReactNode {
  if (user !== undefined)
    return (
      <Empty>
        <p>
          No {status} user has an external id or e-mail address that begins with “
          <Name>{user}</Name>”. In external ids, capital and small letters differ.
        </p>
      </Empty>
    )
  return (
    <Empty>
      {status === undefined
        ? 'This app has no users yet. Your backend creates them, or you do here.'
        : `No user is ${status}.`}
    </Empty>
  )
}

interface UserTableProps {
  readonly clientId: string
  readonly pages: readonly Schemas['UserList'][]
  readonly hasMore: boolean
}

const columns = [
  { name: 'External id' },
  { name: 'E-mail address' },
  { name: 'Status' },
  { name: 'Created' },
]

const UserTable = ({ clientId, pages, hasMore }: UserTableProps): ReactNode => (
  <LongTable
    label="Table of users"
    columns={columns}
    pages={useMemo(() => pages.map((page) => page.users), [pages])}
    hasMore={hasMore}
    keyOf={idOf}
  >
    {({ externalUserId, email, status, role, createdAt }) => (
      <>
        <th scope="row">
          <Link to="/$clientId/users/$externalUserId" params={{ clientId, externalUserId }}>
            <Name>{externalUserId}</Name>
          </Link>
          {role === 'owner' && <small className="soft"> the app’s owner</small>}
        </th>
        <td>{email !== null && <Name>{email}</Name>}</td>
        <td>
          <UserStatus status={status} />
        </td>
        <td>
          <Instant at={createdAt} />
        </td>
      </>
    )}
  </LongTable>
)

const idOf = ({ id }: Schemas['User']): string => id
