import { useQuery } from '@tanstack/react-query'
import { type ReactNode, useState } from 'react'
import {
  type Signer,
  type SignerSecrets,
  signersQuery,
  useCreateSigner,
  useRemoveSigner,
  useRotateSigner,
} from '../api/operate.ts'
import { useIdempotencyKey } from '../api/submission.ts'
import { Answer } from '../ui/answer.tsx'
import { Button } from '../ui/button.tsx'
import { Confirm } from '../ui/confirm.tsx'
import { Instant } from '../ui/instant.tsx'
import { Page } from '../ui/page.tsx'
import { Copyable, ShownOnce } from '../ui/shown-once.tsx'
import { Empty } from '../ui/states.tsx'
import { TableBox } from '../ui/table-box.tsx'
import { NewSigner } from './signers/new-signer.tsx'
import { SignerApps } from './signers/signer-apps.tsx'

type Asked = { readonly act: 'apps' | 'rotate' | 'remove'; readonly signer: Signer }

const daySeconds = 86_400

/**
 * Signers of the deployment: the apps that they sign for, and their secrets. New secrets are kept
 * here, so that a closed dialog does not lose them.
 */
export function Signers(): ReactNode {
  const signers = useQuery(signersQuery)
  const create = useCreateSigner()
  const rotate = useRotateSigner()
  const [asked, setAsked] = useState<Asked | null>(null)
  // A repetition after a lost answer gets the same secrets.
  const [key, renewKey] = useIdempotencyKey()
  const close = (): void => setAsked(null)
  const isShown = create.isSuccess || rotate.isSuccess
  return (
    <Page title="Signers" about="Each has its own secrets, and signs for its apps only.">
      {create.isSuccess && (
        <Secrets name={create.variables.name} made={create.data} onClose={create.reset} />
      )}
      {rotate.isSuccess && (
        <Secrets name={rotate.variables.name} made={rotate.data} onClose={rotate.reset} />
      )}
      <section className="card" aria-label="Signers">
        <Answer query={signers}>
          {(all) =>
            all.length > 0 ? (
              <SignerTable
                signers={all}
                isShown={isShown}
                onAsk={(next) => {
                  if (rotate.isError) rotate.reset()
                  setAsked(next)
                }}
              />
            ) : (
              <Empty>
                <span>
                  There is no signer but the one with <code>WEBHOOK_SECRET</code>, which signs for
                  all apps.
                </span>
              </Empty>
            )
          }
        </Answer>
      </section>
      <NewSigner create={create} isShown={isShown} />
      {asked?.act === 'apps' && <SignerApps signer={asked.signer} onClose={close} />}
      {asked?.act === 'rotate' && (
        <Rotation
          name={asked.signer.name}
          rotate={rotate}
          idempotencyKey={`${key}-${asked.signer.name}`}
          onDone={() => {
            renewKey()
            close()
          }}
          onClose={close}
        />
      )}
      {asked?.act === 'remove' && <Removal name={asked.signer.name} onClose={close} />}
    </Page>
  )
}

interface SecretsProps {
  readonly name: string
  readonly made: SignerSecrets
  readonly onClose: () => void
}

const Secrets = ({ name, made, onClose }: SecretsProps): ReactNode => (
  <ShownOnce label={`Secret of ${name}`} text={made.secret} onClose={onClose}>
    {made.eventsSecret !== undefined && (
      <>
        <p>For events:</p>
        <Copyable text={made.eventsSecret} />
      </>
    )}
  </ShownOnce>
)

interface SignerTableProps {
  readonly signers: readonly Signer[]
  /** Whether secrets are shown, which further ones would replace. */
  readonly isShown: boolean
  readonly onAsk: (asked: Asked) => void
}

const SignerTable = ({ signers, isShown, onAsk }: SignerTableProps): ReactNode => (
  <TableBox label="Table of signers">
    <table>
      <thead>
        <tr>
          <th scope="col">Name</th>
          <th scope="col">Signs for</th>
          <th scope="col">Events</th>
          <th scope="col">Valid secrets</th>
          <th scope="col">Created</th>
          <th scope="col">Actions</th>
        </tr>
      </thead>
      <tbody>
        {signers.map((signer) => (
          <tr key={signer.name}>
            <th scope="row">{signer.name}</th>
            <td>
              {signer.allApps
                ? 'all apps'
                : signer.clientIds.map((clientId) => (
                    <div key={clientId}>
                      <code>{clientId}</code>
                    </div>
                  ))}
            </td>
            <td>{signer.mayPushEvents ? 'may push' : 'no'}</td>
            <td>{signer.secrets}</td>
            <td>
              <Instant at={signer.createdAt} />
            </td>
            <td>
              <div className="row">
                <Button
                  isSmall
                  aria-label={`Change the apps of ${signer.name}`}
                  onClick={() => onAsk({ act: 'apps', signer })}
                >
                  Apps
                </Button>
                <Button
                  isSmall
                  disabled={isShown}
                  aria-label={`New secrets for ${signer.name}`}
                  onClick={() => onAsk({ act: 'rotate', signer })}
                >
                  New secrets
                </Button>
                <Button
                  isSmall
                  kind="danger"
                  aria-label={`Remove ${signer.name}`}
                  onClick={() => onAsk({ act: 'remove', signer })}
                >
                  Remove
                </Button>
              </div>
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  </TableBox>
)

interface RotationProps {
  readonly name: string
  readonly rotate: ReturnType<typeof useRotateSigner>
  readonly idempotencyKey: string
  readonly onDone: () => void
  readonly onClose: () => void
}

const Rotation = (props: RotationProps): ReactNode => {
  const { name, rotate, idempotencyKey, onDone, onClose } = props
  const rotation = { name, overlapSeconds: daySeconds, idempotencyKey }
  return (
    <Confirm
      title={`Make new secrets for ${name}?`}
      effect="The old ones stay valid for a day, so that the signer can switch. Then they end."
      action="Make new secrets"
      isBusy={rotate.isPending}
      error={rotate.error}
      onConfirm={() => rotate.mutate(rotation, { onSuccess: onDone })}
      onClose={onClose}
    />
  )
}

function Removal({ name, onClose }: { name: string; onClose: () => void }): ReactNode {
  const remove = useRemoveSigner()
  return (
    <Confirm
      title={`Remove ${name}?`}
      effect="Its secrets end at once, and calls through it are refused. This cannot be undone."
      typed={name}
      action="Remove"
      isBusy={remove.isPending}
      error={remove.error}
      onConfirm={() => remove.mutate(name, { onSuccess: onClose })}
      onClose={onClose}
    />
  )
}
