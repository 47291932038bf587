import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { type ReactNode, useState } from 'react'
import { routingQuery, useSignerSecretChanges } from '../api/settings.ts'
import { useIdempotencyKey, useOneAtATime } from '../api/submission.ts'
import { Answer } from '../ui/answer.tsx'
import { Button } from '../ui/button.tsx'
import { CopyButton } from '../ui/copy-button.tsx'
import { Copyable, ShownOnce } from '../ui/shown-once.tsx'
import { Failure } from '../ui/states.tsx'
import { Step, type StepState } from './step.tsx'

interface SignerStepProps {
  readonly clientId: string
  readonly canEdit: boolean
  readonly canOwn: boolean
  readonly state: StepState
}

/** The settings of the signer, ready to copy. */
export function SignerStep({ clientId, canOwn, state }: SignerStepProps): ReactNode {
  const routing = useQuery(routingQuery(clientId))
  const [secret, setSecret] = useState<string>()
  return (
    <Step number={4} title="Signer" state={state}>
      <p>
        The operator’s signer asks this service before each payment, for all apps. Its operator has
        set it up, and there is nothing to do. A signer of your own needs these flags, and a secret.
      </p>
      <Answer query={routing} rows={3}>
        {({ dmzUrl, webhookUrl, meteringMode }) => (
          <>
            {dmzUrl !== '' && (
              <dl className="facts">
                <div>
                  <dt>Remote signer of the operator</dt>
                  <dd>
                    <Copyable text={dmzUrl} />
                  </dd>
                </div>
              </dl>
            )}
            <Flags text={toFlags(webhookUrl, meteringMode, secret)} />
          </>
        )}
      </Answer>
      {canOwn ? (
        <OwnSecret clientId={clientId} onCreated={setSecret} />
      ) : (
        <p className="soft">Only an owner of the app makes secrets for signers.</p>
      )}
      <p className="soft">
        The step is done when the first ticket arrives: that proves every part of the way.
      </p>
    </Step>
  )
}

const Flags = ({ text }: { text: string }): ReactNode => (
  <>
    <pre className="program" tabIndex={0} role="region" aria-label="Flags of the signer">
      {text}
    </pre>
    <div className="row">
      <CopyButton text={text} name="the flags" />
    </div>
  </>
)

/** The flags of go-livepeer's signer (docs/signer-protocol.md). */
function toFlags(webhookUrl: string, meteringMode: 'stream' | 'direct', secret = 'SECRET'): string {
  const events =
    meteringMode === 'stream'
      ? '-monitor -kafkaBootstrapServers BROKER -kafkaGatewayTopic livepeer-gateway-events'
      : '-monitor'
  return `-remoteSignerWebhookUrl ${webhookUrl} \\
-remoteSignerWebhookHeaders "Authorization:Bearer ${secret}" \\
${events}
`
}

interface OwnSecretProps {
  readonly clientId: string
  readonly onCreated: (secret: string | undefined) => void
}

/** Makes a secret with which a signer of the app's own gets decisions. */
function OwnSecret({ clientId, onCreated }: OwnSecretProps): ReactNode {
  const { create } = useSignerSecretChanges(clientId)
  const [idempotencyKey, renewKey] = useIdempotencyKey()
  const submit = useOneAtATime()
  if (create.data)
    return (
      <ShownOnce
        label="Secret of the signer"
        text={create.data.secret}
        onClose={() => {
          onCreated(undefined)
          create.reset()
          renewKey()
        }}
      >
        <p>The flags above contain it, until you close this.</p>
      </ShownOnce>
    )
  return (
    <>
      <div className="row">
        <Button
          disabled={create.isPending}
          onClick={() =>
            submit((onSettled) =>
              create.mutate(
                { body: { purpose: 'decisions' }, idempotencyKey },
                { onSuccess: ({ secret }) => onCreated(secret), onSettled },
              ),
            )
          }
        >
          {create.isPending ? 'Making …' : 'Make a secret for a signer of your own'}
        </Button>
      </div>
      {create.error && <Failure error={create.error} />}
      <p className="soft">
        <Link to="/$clientId/settings" params={{ clientId }} hash="signer-secrets">
          Settings
        </Link>{' '}
        list these secrets and revoke them.
      </p>
    </>
  )
}
