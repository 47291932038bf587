import { useQuery } from '@tanstack/react-query'
import { type ReactNode, useState } from 'react'
import { type Signer, type SignerSecrets, signersQuery, useSignerChanges } from '../api/operate.ts'
import { Answer } from '../ui/answer.tsx'
import { Button } from '../ui/button.tsx'
import { Confirm } from '../ui/confirm.tsx'
import { Instant } from '../ui/instant.tsx'
import { Page } from '../ui/page.tsx'
import { Copyable, ShownOnce } from '../ui/shown-once.tsx'
import { Empty } from '../ui/states.tsx'
import { TableBox } from '../ui/table-box.tsx'
import { NewSigner } from './new-signer.tsx'

type Asked = { readonly act: 'rotate' | 'remove'; readonly signer: Signer }

const daySeconds = 86_400

/** Signers of the deployment: the apps that they sign for, and their secrets. */
export function Signers(): ReactNode {
  const signers = useQuery(signersQuery)
  const [secrets, setSecrets] = useState<{ name: string; made: SignerSecrets } | null>(null)
  const [asked, setAsked] = useState<Asked | null>(null)
  return (
    <Page title="Signers" about="Each has its own secrets, and signs for its apps only.">
      {secrets && (
        <Secrets name={secrets.name} made={secrets.made} onClose={() => setSecrets(null)} />
      )}
      <section className="card" aria-label="Signers">
        <Answer query={signers}>
          {(all) =>
            all.length > 0 ? (
              <SignerTable signers={all} onAsk={setAsked} />
            ) : (
              <Empty>
                There is no signer but the one with <code>WEBHOOK_SECRET</code>, which signs for all
                apps.
              </Empty>
            )
          }
        </Answer>
      </section>
      <NewSigner onMade={(name, made) => setSecrets({ name, made })} />
      {asked && (
        <Question
          {...asked}
          onClose={() => setAsked(null)}
          onSecrets={(made) => setSecrets({ name: asked.signer.name, made })}
        />
      )}
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
  readonly onAsk: (asked: Asked) => void
}

const SignerTable = ({ signers, onAsk }: SignerTableProps): ReactNode => (
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

interface QuestionProps extends Asked {
  readonly onClose: () => void
  readonly onSecrets: (made: SignerSecrets) => void
}

function Question({ act, signer: { name }, onClose, onSecrets }: QuestionProps): ReactNode {
  const { rotate, remove } = useSignerChanges()
  return act === 'rotate' ? (
    <Confirm
      title={`Make new secrets for ${name}?`}
      effect="The old ones stay valid for a day, so that the signer can switch. Then they end."
      action="Make new secrets"
      isBusy={rotate.isPending}
      error={rotate.error}
      onConfirm={() =>
        rotate.mutate(
          { name, overlapSeconds: daySeconds },
          {
            onSuccess: (made) => {
              onSecrets(made)
              onClose()
            },
          },
        )
      }
      onClose={onClose}
    />
  ) : (
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
