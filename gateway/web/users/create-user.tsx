import { Link } from '@tanstack/react-router'
import { type ReactNode, useState } from 'react'
import { Button } from '../ui/button.tsx'
import { Name } from '../ui/name.tsx'
import { Failure } from '../ui/states.tsx'
import { useCreateUser } from './changes.ts'

/** Creates a user by the integrator's id. */
export function CreateUser({ clientId }: { clientId: string }): ReactNode {
  const [id, setId] = useState('')
  const [email, setEmail] = useState('')
  const create = useCreateUser(clientId)
  return (
    <section className="card" aria-labelledby="create-user">
      <h2 id="create-user">Create a user</h2>
      <form
        className="row"
        onSubmit={(event) => {
          event.preventDefault()
          const address = email.trim()
          create.mutate(
            { externalUserId: id.trim(), ...(address !== '' && { email: address }) },
            {
              onSuccess: () => {
                setId('')
                setEmail('')
              },
            },
          )
        }}
      >
        <label>
          External id of the new user
          <input
            required
            pattern=".*\S.*"
            value={id}
            onChange={(event) => setId(event.target.value)}
            aria-describedby="new-user-hint"
          />
        </label>
        <label>
          E-mail address (optional)
          <input
            type="email"
            maxLength={320}
            value={email}
            onChange={(event) => setEmail(event.target.value)}
          />
        </label>
        <Button type="submit" kind="main" disabled={create.isPending}>
          {create.isPending ? 'Creating …' : 'Create'}
        </Button>
      </form>
      <p className="soft" id="new-user-hint">
        The id by which your backend knows the user, at most 200 bytes. A new user is on the Starter
        plan. An existing user is kept; only the address changes if you enter one.
      </p>
      {create.error && <Failure error={create.error} />}
      {create.isSuccess && (
        <p role="status">
          The user exists:{' '}
          <Link
            to="/$clientId/users/$externalUserId"
            params={{ clientId, externalUserId: create.data.externalUserId }}
          >
            <Name>{create.data.externalUserId}</Name>
          </Link>
        </p>
      )}
    </section>
  )
}
