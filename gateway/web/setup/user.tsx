import { type UseQueryResult, useQuery } from '@tanstack/react-query'
import { Link, useNavigate } from '@tanstack/react-router'
import { type ReactNode, useState } from 'react'
import type { Schemas } from '../api/client.ts'
import { useCreateFirstKey, useCreateFirstUser } from '../api/setup.ts'
import { useIdempotencyKey, useOneAtATime } from '../api/submission.ts'
import { type UserRef, allowanceQuery } from '../api/users.ts'
import { Micros } from '../ui/amount.tsx'
import { Answer } from '../ui/answer.tsx'
import { Button } from '../ui/button.tsx'
import { Name } from '../ui/name.tsx'
import { ShownOnce } from '../ui/shown-once.tsx'
import { Failure } from '../ui/states.tsx'
import { Step, type StepState } from './step.tsx'

interface UserStepProps {
  readonly clientId: string
  readonly canEdit: boolean
  readonly state: StepState
  readonly user: UseQueryResult<Schemas['User'] | null>
  readonly workingKey: UseQueryResult<Schemas['Key'] | null>
}

/** The first user, what it may spend, and its key. */
export function UserStep(props: UserStepProps): ReactNode {
  const { clientId, canEdit, state, user, workingKey } = props
  return (
    <Step number={3} title="First user and key" state={state}>
      <Answer query={user} rows={2}>
        {(data) =>
          data === null ? (
            <NoUser clientId={clientId} canEdit={canEdit} />
          ) : (
            <>
              <Money user={{ clientId, externalUserId: data.externalUserId }} />
              <FirstKey
                key={data.externalUserId}
                user={{ clientId, externalUserId: data.externalUserId }}
                canEdit={canEdit}
                workingKey={workingKey}
              />
            </>
          )
        }
      </Answer>
    </Step>
  )
}

function NoUser({ clientId, canEdit }: { clientId: string; canEdit: boolean }): ReactNode {
  const [id, setId] = useState('')
  const create = useCreateFirstUser(clientId)
  const navigate = useNavigate({ from: '/$clientId/setup' })
  if (!canEdit) return <p className="soft">The app has no active user.</p>
  return (
    <>
      <p>
        The id by which your backend knows the user. A new user is on the Starter plan. Users who
        log in, or who bring tokens of your own identity provider, come by themselves.
      </p>
      <form
        className="row"
        onSubmit={(event) => {
          event.preventDefault()
          create.mutate(id.trim(), {
            onSuccess: ({ externalUserId }) =>
              void navigate({ search: { user: externalUserId }, replace: true }),
          })
        }}
      >
        <label>
          External id of the first user
          <input
            required
            pattern=".*\S.*"
            placeholder="ada"
            value={id}
            onChange={(event) => setId(event.target.value)}
          />
        </label>
        <Button type="submit" kind="main" disabled={create.isPending}>
          {create.isPending ? 'Creating …' : 'Create the user'}
        </Button>
      </form>
      {create.error && <Failure error={create.error} />}
    </>
  )
}

/** What the user may spend, which decides whether calls are allowed. */
function Money({ user }: { user: UserRef }): ReactNode {
  const allowance = useQuery(allowanceQuery(user))
  const link = (text: ReactNode): ReactNode => (
    <Link to="/$clientId/users/$externalUserId" params={{ ...user }}>
      {text}
    </Link>
  )
  return (
    <Answer query={allowance} rows={1}>
      {({ canSpend, remainingUsdMicros }) => (
        <p>
          {link(<Name>{user.externalUserId}</Name>)} may spend{' '}
          {canSpend ? <Micros value={remainingUsdMicros} /> : <>nothing: {link('give credit')}</>}.
        </p>
      )}
    </Answer>
  )
}

interface FirstKeyProps {
  readonly user: UserRef
  readonly canEdit: boolean
  readonly workingKey: UseQueryResult<Schemas['Key'] | null>
}

function FirstKey({ user, canEdit, workingKey }: FirstKeyProps): ReactNode {
  const create = useCreateFirstKey(user)
  const [idempotencyKey] = useIdempotencyKey()
  const submit = useOneAtATime()
  const text = create.data?.apiKey
  if (text !== undefined)
    return (
      <ShownOnce label="The key" text={text} onClose={create.reset}>
        <p>
          A program of the user sends it to the signer as <code>Authorization: Bearer</code>.
        </p>
      </ShownOnce>
    )
  return (
    <Answer query={workingKey} rows={1}>
      {(key) =>
        key ? (
          <p className="soft">
            It has a key that begins with <code>{key.prefix}</code>.
          </p>
        ) : canEdit ? (
          <>
            <div className="row">
              <Button
                kind="main"
                disabled={create.isPending}
                onClick={() => submit((onSettled) => create.mutate(idempotencyKey, { onSettled }))}
              >
                {create.isPending ? 'Creating …' : 'Create a key'}
              </Button>
            </div>
            {create.error && <Failure error={create.error} />}
          </>
        ) : (
          <p className="soft">It has no key that works.</p>
        )
      }
    </Answer>
  )
}
