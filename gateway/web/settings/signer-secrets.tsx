import { useQuery } from '@tanstack/react-query'
import { type ReactNode, useState } from 'react'
import { signerSecretsQuery } from '../api/attention.ts'
import type { Schemas } from '../api/client.ts'
import { useSignerSecretChanges } from '../api/settings.ts'
import { Answer } from '../ui/answer.tsx'
import { Button } from '../ui/button.tsx'
import { Confirm } from '../ui/confirm.tsx'
import { Instant } from '../ui/instant.tsx'
import { Empty } from '../ui/states.tsx'
import { TableBox } from '../ui/table-box.tsx'
import { NewSignerSecret } from './new-signer-secret.tsx'

type SignerSecret = Schemas['SignerSecretList']['secrets'][number]

const opens = { decisions: 'decisions (/authorize)', events: 'events (/events)' }

const refused = { decisions: 'requests', events: 'events' }

/** The secrets of the app's own signer. Only owners see, make and revoke them. */
export function SignerSecrets({ clientId }: { clientId: string }): ReactNode {
  const secrets = useQuery(signerSecretsQuery(clientId))
  const [revoked, setRevoked] = useState<SignerSecret>()
  const { revoke } = useSignerSecretChanges(clientId)
  const close = (): void => {
    setRevoked(undefined)
    revoke.reset()
  }
  return (
    <section className="card" aria-labelledby="signer-secrets">
      <h2 id="signer-secrets">Secrets of your own signer</h2>
      <Answer query={secrets} rows={2}>
        {(all) =>
          all.length === 0 ? (
            <Empty>There is none. The operator’s signer needs none of yours.</Empty>
          ) : (
            <SecretTable secrets={all} onRevoke={setRevoked} />
          )
        }
      </Answer>
      <NewSignerSecret clientId={clientId} />
      {revoked && (
        <Confirm
          title="Revoke this secret?"
          effect={`Sidecars refuse ${refused[revoked.purpose]} with it at once. A revoked secret never works again, so make another one first.`}
          action="Revoke"
          typed="revoke"
          isBusy={revoke.isPending}
          error={revoke.error}
          onConfirm={() => revoke.mutate(revoked.id, { onSuccess: close })}
          onClose={close}
        />
      )}
    </section>
  )
}

interface SecretTableProps {
  readonly secrets: readonly SignerSecret[]
  readonly onRevoke: (secret: SignerSecret) => void
}

const SecretTable = ({ secrets, onRevoke }: SecretTableProps): ReactNode => (
  <TableBox label="Table of signer secrets">
    <table>
      <thead>
        <tr>
          <th scope="col">Id</th>
          <th scope="col">Opens</th>
          <th scope="col">Made</th>
          <th scope="col">Ends</th>
          <th scope="col">Actions</th>
        </tr>
      </thead>
      <tbody>
        {secrets.map((secret) => (
          <tr key={secret.id}>
            <th scope="row">
              <code>{secret.id}</code>
            </th>
            <td>{opens[secret.purpose]}</td>
            <td>
              <Instant at={secret.createdAt} />
            </td>
            <td>
              {secret.expiresAt === null ? 'when revoked' : <Instant at={secret.expiresAt} />}
            </td>
            <td>
              <Button
                isSmall
                kind="danger"
                aria-label={`Revoke the secret ${secret.id}`}
                onClick={() => onRevoke(secret)}
              >
                Revoke
              </Button>
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  </TableBox>
)
