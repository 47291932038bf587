import { Link } from '@tanstack/react-router'
import { type ReactNode, useState } from 'react'
import { useRotateSecret } from '../api/settings.ts'
import { useIdempotencyKey, useOneAtATime } from '../api/submission.ts'
import { Button } from '../ui/button.tsx'
import { Instant } from '../ui/instant.tsx'
import { ShownOnce } from '../ui/shown-once.tsx'
import { Failure } from '../ui/states.tsx'
import { Step, type StepState } from './step.tsx'

interface SecretStepProps {
  readonly clientId: string
  readonly canEdit: boolean
  readonly state: StepState
  readonly m2mClientId: string | undefined
}

/** The secret with which the app's backend calls the API. */
export function SecretStep({ clientId, canEdit, state, m2mClientId }: SecretStepProps): ReactNode {
  const create = useRotateSecret(clientId)
  const [isShown, setIsShown] = useState(false)
  const [idempotencyKey, renewKey] = useIdempotencyKey()
  const submit = useOneAtATime()
  return (
    <Step number={2} title="Client secret" state={state}>
      <p>
        Your backend creates users and reads usage with it, as HTTP Basic with the id{' '}
        <code>{m2mClientId}</code>.
      </p>
      {state === 'done' && !isShown && (
        <p className="soft">
          The app has a secret, which is not shown again.{' '}
          <Link to="/$clientId/settings" params={{ clientId }}>
            Replace a lost one
          </Link>
        </p>
      )}
      {state === 'open' &&
        (canEdit ? (
          <div className="row">
            <Button
              kind="main"
              disabled={create.isPending}
              onClick={() =>
                submit((onSettled) =>
                  create.mutate(
                    { revokeOld: false, idempotencyKey },
                    { onSuccess: () => setIsShown(true), onSettled },
                  ),
                )
              }
            >
              {create.isPending ? 'Creating …' : 'Create a secret'}
            </Button>
          </div>
        ) : (
          <p className="soft">An admin or owner of the app creates it here.</p>
        ))}
      {create.error && <Failure error={create.error} />}
      {create.data && isShown && (
        <ShownOnce
          label="Client secret"
          text={create.data.clientSecret}
          onClose={() => {
            setIsShown(false)
            create.reset()
            renewKey()
          }}
        >
          <p>
            Older secrets end <Instant at={create.data.oldSecretsExpireAt} />.
          </p>
        </ShownOnce>
      )}
    </Step>
  )
}
