import { type ReactNode, useState } from 'react'
import type { Schemas } from '../api/client.ts'
import { useRotateSecret } from '../api/settings.ts'
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
  const [asked, setAsked] = useState<'beside' | 'instead'>()
  const rotate = useRotateSecret(app.clientId)
  const close = (): void => setAsked(undefined)
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
          </p>
        </ShownOnce>
      )}
      {asked && (
        <Confirm
          title={asked === 'beside' ? 'Make a new client secret?' : 'Replace the client secret?'}
          effect={effects[asked]}
          action={asked === 'beside' ? 'Make a secret' : 'Replace'}
          {...(asked === 'instead' && { typed: 'replace' })}
          isBusy={rotate.isPending}
          error={rotate.error}
          onConfirm={() => rotate.mutate({ revokeOld: asked === 'instead' }, { onSuccess: close })}
          onClose={() => {
            close()
            if (rotate.isError) rotate.reset()
          }}
        />
      )}
    </section>
  )
}

const effects = {
  beside: 'Older secrets keep working for a while, so that your backend can switch without a stop.',
  instead:
    'Every older secret ends at once, with the tokens, signer sessions and API keys that were made with it. Your backend fails until it has the new one.',
}
