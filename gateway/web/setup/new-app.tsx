import { useQuery } from '@tanstack/react-query'
import { useNavigate } from '@tanstack/react-router'
import { type ReactNode, useState } from 'react'
import { ApiError } from '../api/client.ts'
import { sessionQuery } from '../api/queries.ts'
import { type CreatedApp, useCreateApp } from '../api/setup.ts'
import { useIdempotencyKey, useOneAtATime } from '../api/submission.ts'
import { Answer } from '../ui/answer.tsx'
import { Button } from '../ui/button.tsx'
import { Page } from '../ui/page.tsx'
import { ShownOnce } from '../ui/shown-once.tsx'
import { Empty, Failure } from '../ui/states.tsx'

/** Creates an app, and leads to its set-up. */
export function NewApp(): ReactNode {
  const session = useQuery(sessionQuery)
  return (
    <Page title="Create an app" about="Then its set-up leads to the first authorised job.">
      <section className="card" aria-label="New app">
        <Answer query={session} rows={2}>
          {({ canCreateApps }) =>
            canCreateApps ? (
              <NewAppForm />
            ) : (
              <Empty>
                <p>Only platform admins create apps here.</p>
                <p>
                  An operator creates one by <code>./tollgate app create --name NAME --owner</code>{' '}
                  with your address, or lets every account do it with{' '}
                  <code>APP_CREATION=accounts</code>.
                </p>
              </Empty>
            )
          }
        </Answer>
      </section>
    </Page>
  )
}

function NewAppForm(): ReactNode {
  const [name, setName] = useState('')
  const [isTest, setIsTest] = useState(false)
  const create = useCreateApp()
  const [idempotencyKey, renewKey] = useIdempotencyKey()
  const submit = useOneAtATime()
  if (create.data) return <Created app={create.data} />
  return (
    <form
      className="stack"
      onSubmit={(event) => {
        event.preventDefault()
        const body = { name: name.trim(), isTest }
        submit((onSettled) => create.mutate({ body, idempotencyKey }, { onSettled }))
      }}
    >
      <label>
        Name
        <input
          required
          pattern=".*\S.*"
          maxLength={200}
          value={name}
          onChange={(event) => {
            setName(event.target.value)
            renewKey()
          }}
        />
      </label>
      <label className="choice">
        <input
          type="checkbox"
          checked={isTest}
          onChange={(event) => {
            setIsTest(event.target.checked)
            renewKey()
          }}
        />
        A test app, whose clock can be moved ahead. This cannot be changed later.
      </label>
      {create.error && <Refusal error={create.error} />}
      <Button type="submit" kind="main" disabled={create.isPending}>
        {create.isPending ? 'Creating …' : 'Create the app'}
      </Button>
    </form>
  )
}

/** Without an answer, the app may exist. The form's key makes the same request again harmless. */
const Refusal = ({ error }: { error: Error }): ReactNode => (
  <>
    <Failure error={error} />
    {(!(error instanceof ApiError) || error.status === 0 || error.status >= 500) && (
      <p>
        The app may have been created. Press the button again without a change: it then returns that
        app, and never a second one.
      </p>
    )}
  </>
)

function Created({ app }: { app: CreatedApp }): ReactNode {
  const navigate = useNavigate()
  const { clientId, m2mClientId, m2mClientSecret } = app
  return (
    <ShownOnce
      label="Client secret"
      text={m2mClientSecret}
      onClose={() => void navigate({ to: '/$clientId/setup', params: { clientId } })}
    >
      <p>
        Your backend sends it with the id <code>{m2mClientId}</code> as HTTP Basic.
      </p>
    </ShownOnce>
  )
}
