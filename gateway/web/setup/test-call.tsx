import { type UseQueryResult, useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import type { Schemas } from '../api/client.ts'
import { routingQuery } from '../api/settings.ts'
import { type TestCall, useTestCall } from '../api/setup.ts'
import { useOneAtATime } from '../api/submission.ts'
import type { UserRef } from '../api/users.ts'
import { Answer } from '../ui/answer.tsx'
import { Button } from '../ui/button.tsx'
import { CopyButton } from '../ui/copy-button.tsx'
import { Instant } from '../ui/instant.tsx'
import { Name } from '../ui/name.tsx'
import { Failure } from '../ui/states.tsx'
import { Step, type StepState } from './step.tsx'

type Permission = Schemas['DecisionList']['decisions'][number]

interface TestCallStepProps {
  readonly clientId: string
  readonly canEdit: boolean
  readonly state: StepState
  readonly externalUserId: string | undefined
  readonly permission: UseQueryResult<Permission | null>
}

/** Sends the signer's question about the user, and shows the answer. */
export function TestCallStep(props: TestCallStepProps): ReactNode {
  const { clientId, canEdit, state, externalUserId, permission } = props
  return (
    <Step number={5} title="Test of the webhook" state={state}>
      <p>
        Sends the question that the signer asks before each payment, for your user, through the
        webhook of this deployment. Nothing is signed and nothing is charged; a few cents may be
        held for seconds.
      </p>
      <Answer query={permission} rows={1}>
        {(data) =>
          data && (
            <p className="soft">
              The webhook last allowed a recorded call <Instant at={data.decidedAt} />.
            </p>
          )
        }
      </Answer>
      {externalUserId === undefined ? (
        <p className="soft">It needs a user: step 3.</p>
      ) : canEdit ? (
        <Test key={externalUserId} user={{ clientId, externalUserId }} />
      ) : (
        <p className="soft">An admin or owner of the app sends it here.</p>
      )}
      <ByHand clientId={clientId} />
    </Step>
  )
}

function Test({ user }: { user: UserRef }): ReactNode {
  const call = useTestCall(user)
  const submit = useOneAtATime()
  return (
    <>
      <div className="row">
        <Button
          kind="main"
          disabled={call.isPending}
          onClick={() => submit((onSettled) => call.mutate(undefined, { onSettled }))}
        >
          {call.isPending ? 'Asking …' : `Send a test call for ${user.externalUserId}`}
        </Button>
      </div>
      {call.error && <Failure error={call.error} />}
      {call.data && !call.isPending && <TestAnswer user={user} answer={call.data} />}
    </>
  )
}

function TestAnswer({ user, answer }: { user: UserRef; answer: TestCall }): ReactNode {
  const { status, code, reason, decision, explanation, durationMs } = answer
  return (
    <div className="stack" role="status" aria-label="Answer of the webhook">
      <p>
        <span className={status === 200 ? 'badge good' : 'badge bad'}>
          {status} {code}
        </span>{' '}
        in {durationMs} ms, as a test.
      </p>
      {reason !== '' && (
        <p>
          <Name>{reason}</Name>. <a href={`/errors/${encodeURIComponent(code)}`}>What to do</a>
        </p>
      )}
      {explanation.length > 0 ? (
        <ul className="steps">
          {explanation.map((sentence) => (
            <li key={sentence}>
              <Name>{sentence}</Name>
            </li>
          ))}
        </ul>
      ) : (
        <p className="soft">The decision was not recorded in time, so it is not explained here.</p>
      )}
      {decision !== '' && (
        <Link
          to="/$clientId/users/$externalUserId"
          params={{ ...user }}
          search={{ part: 'decisions', decision }}
        >
          The decision among those about the user
        </Link>
      )}
    </div>
  )
}

/** The same question from the signer's own machine. */
function ByHand({ clientId }: { clientId: string }): ReactNode {
  const routing = useQuery(routingQuery(clientId))
  const text = `curl -sS '${routing.data?.webhookUrl ?? 'WEBHOOK_URL'}' \\
  -H 'Authorization: Bearer SIGNER_SECRET' \\
  -d '{"headers":{"Authorization":["Bearer USER_KEY"],"X-Tollgate-Explain":["1"]}}'
`
  return (
    <details>
      <summary>From the machine of the signer</summary>
      <div className="stack">
        <pre className="program" tabIndex={0} role="region" aria-label="Test call by hand">
          {text}
        </pre>
        <CopyButton text={text} name="the test call" />
      </div>
    </details>
  )
}
