import { useQuery } from '@tanstack/react-query'
import { useParams, useSearch } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import { appQuery } from '../api/queries.ts'
import { useRights } from '../api/rights.ts'
import {
  newestTicketQuery,
  permissionQuery,
  setupUserQuery,
  workingKeyQuery,
} from '../api/setup.ts'
import { Answer } from '../ui/answer.tsx'
import { Page } from '../ui/page.tsx'
import { SecretStep } from './secret.tsx'
import { SignerStep } from './signer.tsx'
import { Step, type StepState } from './step.tsx'
import { TestCallStep } from './test-call.tsx'
import { TicketStep } from './ticket.tsx'
import { UserStep } from './user.tsx'

const from = '/$clientId/setup'

/** From nothing to the first ticket. What is done is read from the service, so it can go on any day. */
export function Setup(): ReactNode {
  const { clientId } = useParams({ from })
  const app = useQuery(appQuery(clientId))
  return (
    <Page title="Set-up" about="From an app to its first authorised job.">
      <Answer query={app}>{() => <Steps clientId={clientId} />}</Answer>
    </Page>
  )
}

function Steps({ clientId }: { clientId: string }): ReactNode {
  const { user: named } = useSearch({ from })
  const { data: app } = useQuery(appQuery(clientId))
  const { canEdit, canOwn } = useRights(clientId)
  const { user, key, permission, ticket } = useProgress(clientId, named)
  const client = app?.m2mOidcClient
  const shared = { clientId, canEdit }
  const states = {
    secret: client?.hasSecret ? 'done' : 'open',
    user: user.data === null ? 'open' : proven(ticket, found(key)),
    signer: proven(ticket, 'open'),
    test: proven(ticket, found(permission)),
    ticket: proven(ticket, 'waiting'),
  } as const
  const done = Object.values(states).filter((state) => state === 'done').length + 1
  return (
    <>
      <p role="status" aria-label="Progress">
        {done} of 6 steps are done.{' '}
        {!canEdit && <span className="soft">You may read here, and change nothing.</span>}
      </p>
      <ol className="setup">
        <Step number={1} title="App" state="done">
          <p>
            {app?.name}, <code>{clientId}</code>
          </p>
        </Step>
        <SecretStep {...shared} state={states.secret} m2mClientId={client?.clientId} />
        <UserStep {...shared} state={states.user} user={user} workingKey={key} />
        <SignerStep {...shared} state={states.signer} canOwn={canOwn} />
        <TestCallStep
          {...shared}
          state={states.test}
          externalUserId={user.data?.externalUserId}
          permission={permission}
        />
        <TicketStep clientId={clientId} state={states.ticket} ticket={ticket} />
      </ol>
    </>
  )
}

/** Reads what is done. */
function useProgress(clientId: string, named: string | undefined) {
  const user = useQuery(setupUserQuery(clientId, named))
  const externalUserId = user.data?.externalUserId ?? ''
  const key = useQuery({
    ...workingKeyQuery({ clientId, externalUserId }),
    enabled: externalUserId !== '',
  })
  const permission = useQuery(permissionQuery(clientId))
  const ticket = useQuery(newestTicketQuery(clientId))
  return { user, key, permission, ticket }
}

interface Read {
  readonly data: object | null | undefined
}

/** A ticket proves the steps before it. Without one, the step has its own state. */
function proven({ data }: Read, otherwise: StepState): StepState {
  if (data) return 'done'
  return data === null ? otherwise : 'unknown'
}

/** Whether the query has found something. */
const found = ({ data }: Read): StepState => (data ? 'done' : data === null ? 'open' : 'unknown')
