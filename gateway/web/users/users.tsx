import { useInfiniteQuery } from '@tanstack/react-query'
import { Link, useNavigate, useParams, useSearch } from '@tanstack/react-router'
import { type ReactNode, useState } from 'react'
import type { Schemas } from '../api/client.ts'
import { useRights } from '../api/rights.ts'
import { type UserFilter, usersQuery } from '../api/users.ts'
import { Answer } from '../ui/answer.tsx'
import { Button } from '../ui/button.tsx'
import { Instant } from '../ui/instant.tsx'
import { More } from '../ui/more.tsx'
import { Name } from '../ui/name.tsx'
import { Page } from '../ui/page.tsx'
import { Empty } from '../ui/states.tsx'
import { TableBox } from '../ui/table-box.tsx'
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
      <section className="card" aria-label="Users">
        <Filter key={filter.user ?? ''} filter={filter} />
        <Answer query={users}>
          {({ pages }) => {
            const found = pages.flatMap((page) => page.users)
            return found.length > 0 ? (
              <UserTable clientId={clientId} users={found} />
            ) : (
              <NoUsers filter={filter} />
            )
          }}
        </Answer>
        <More query={users} label="Show more" />
      </section>
    </Page>
  )
}

function Filter({ filter }: { filter: UserFilter }): ReactNode {
  const navigate = useNavigate({ from: '/$clientId/users' })
  const { status, user = '' } = filter
  const [text, setText] = useState(user)
  const show = (search: UserFilter): void => void navigate({ search })
  const withStatus = status === undefined ? {} : { status }
  return (
    <form
      className="row"
      role="search"
      onSubmit={(event) => {
        event.preventDefault()
        const wanted = text.trim()
        show({ ...withStatus, ...(wanted !== '' && { user: wanted }) })
      }}
    >
      <label>
        External id, complete
        <input type="search" value={text} onChange={(event) => setText(event.target.value)} />
      </label>
      <label>
        Status
        <select
          value={status ?? ''}
          onChange={(event) => {
            const wanted = statuses.find((one) => one === event.target.value)
            show({ ...(wanted && { status: wanted }), ...(user !== '' && { user }) })
          }}
        >
          <option value="">all</option>
          {statuses.map((one) => (
            <option key={one}>{one}</option>
          ))}
        </select>
      </label>
      <Button type="submit">Find</Button>
      {(user !== '' || status !== undefined) && <Button onClick={() => show({})}>Show all</Button>}
    </form>
  )
}

function NoUsers({ filter: { user, status } }: { filter: UserFilter }): ReactNode {
  if (user !== undefined)
    return (
      <Empty>
        <p>
          No {status} user has the external id “<Name>{user}</Name>”. The search finds complete ids
          only; capital and small letters differ.
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
  readonly users: readonly Schemas['User'][]
}

const UserTable = ({ clientId, users }: UserTableProps): ReactNode => (
  <TableBox label="Table of users">
    <table>
      <thead>
        <tr>
          <th scope="col">External id</th>
          <th scope="col">E-mail address</th>
          <th scope="col">Status</th>
          <th scope="col">Created</th>
        </tr>
      </thead>
      <tbody>
        {users.map(({ id, externalUserId, email, status, role, createdAt }) => (
          <tr key={id}>
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
          </tr>
        ))}
      </tbody>
    </table>
  </TableBox>
)
