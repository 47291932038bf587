import { type ReactNode, useState } from 'react'
import type { Schemas } from '../api/client.ts'
import { useRotateSecret } from '../api/settings.ts'
import { useIdempotencyKey } from '../api/submission.ts'
import { formatCount } from '../ui/amounts.ts'
import { Button } from '../ui/button.tsx'
import { Confirm } from '../ui/confirm.tsx'
import { Instant } from '../ui/instant.tsx'
import { Copyable, ShownOnce } from '../ui/shown-once.tsx'

/** The ids of the app's clients, and the secret of its backend. */
export function Credentials({
  app,
  canEdit,
}: {
  app: Schemas['App']
  canEdit: boolean
}): ReactNode {
  const backend = app.m2mOidcClient
  const [asked, setAsked] = useState<keyof typeof effects>()
  const rotate = useRotateSecret(app.clientId)
  return (
    <section className="card" aria-labelledby="credentials">
      <h2 id="credentials">Credentials</h2>
      <dl className="facts">
        <div>
          <dt>Public client, for logins</dt>
          <dd>
            <Copyable text={app.clientId} />
          </dd>
        </div>
        {backend && (
          <div>
            <dt>Client of the backend</dt>
            <dd>
              <Copyable text={backend.clientId} />
              <small className="soft">{backend.hasSecret ? 'has a secret' : 'has no secret'}</small>
              <Secrets secrets={backend.secrets} />
            </dd>
          </div>
        )}
      </dl>
      {canEdit && backend && (
        <div className="row">
          <Button kind="main" onClick={() => setAsked('beside')}>
            {backend.hasSecret ? 'New secret' : 'Create a secret'}
          </Button>
          {backend.hasSecret && (
            <Button kind="danger" onClick={() => setAsked('instead')}>
              Replace the secret at once
            </Button>
          )}
        </div>
      )}
      {rotate.data && (
        <ShownOnce label="Client secret" text={rotate.data.clientSecret} onClose={rotate.reset}>
          <p>
            Older secrets end <Instant at={rotate.data.oldSecretsExpireAt} />.
            {rotate.data.revokedKeys > 0 &&
              ` With them ended ${formatCount(rotate.data.revokedKeys)} API keys.`}
          </p>
        </ShownOnce>
      )}
      {asked && <Rotation asked={asked} rotate={rotate} onClose={() => setAsked(undefined)} />}
    </section>
  )
}

interface RotationProps {
  readonly asked: keyof typeof effects
  readonly rotate: ReturnType<typeof useRotateSecret>
  readonly onClose: () => void
}

/** Asks before a new secret is made. At once, the keys that older ones made may stay. */
function Rotation({ asked, rotate, onClose }: RotationProps): ReactNode {
  const [keepKeys, setKeepKeys] = useState(false)
  const [idempotencyKey, renewKey] = useIdempotencyKey()
  const isAtOnce = asked === 'instead'
  const request = { revokeOld: isAtOnce, keepKeys: isAtOnce && keepKeys, idempotencyKey }
  return (
    <Confirm
      title={isAtOnce ? 'Replace the client secret?' : 'Make a new client secret?'}
      effect={
        <>
          {effects[asked]}
          {isAtOnce && (
            <label className="choice">
              <input
                type="checkbox"
                checked={keepKeys}
                onChange={({ target }) => {
                  setKeepKeys(target.checked)
                  renewKey()
                }}
              />
              Keep the API keys that were made with them. Only if those did not leak, too.
            </label>
          )}
        </>
      }
      action={isAtOnce ? 'Replace' : 'Make a secret'}
      {...(isAtOnce && { typed: 'replace' })}
      isBusy={rotate.isPending}
      error={rotate.error}
      onConfirm={() => rotate.mutate(request, { onSuccess: onClose })}
      onClose={() => {
        onClose()
        if (rotate.isError) rotate.reset()
      }}
    />
  )
}

/** When each valid secret was made, and when it ends. */
const Secrets = ({ secrets }: { secrets: Schemas['OidcClient']['secrets'] }): ReactNode =>
  secrets.length > 0 && (
    <ul className="list" aria-label="Client secrets">
      {secrets.map(({ createdAt, expiresAt }) => (
        <li key={createdAt}>
          made <Instant at={createdAt} />
          {expiresAt !== null && (
            <>
              , ends <Instant at={expiresAt} />
            </>
          )}
        </li>
      ))}
    </ul>
  )

const effects = {
  beside: 'Older secrets keep working for a while, so that your backend can switch without a stop.',
  instead:
    'Every older secret ends at once, with the tokens, signer sessions and API keys that were made with it. Your backend fails until it has the new one.',
}
