import { type ReactNode, useState } from 'react'
import { useIdempotencyKey, useOneAtATime } from '../api/submission.ts'
import { type NewEndpoint, useCreateEndpoint } from '../api/webhooks.ts'
import { Button } from '../ui/button.tsx'
import { Copyable, ShownOnce } from '../ui/shown-once.tsx'
import { Failure } from '../ui/states.tsx'
import { EndpointFields } from './endpoint-fields.tsx'
import { EventTypes } from './event-types.tsx'

const empty: NewEndpoint = { url: '', description: '', eventTypes: [], signing: 'hmac' }

/** Adds an endpoint and shows its secret once. */
export function Creation({ clientId }: { clientId: string }): ReactNode {
  const [endpoint, setEndpoint] = useState(empty)
  const create = useCreateEndpoint(clientId)
  const [idempotencyKey, renewKey] = useIdempotencyKey()
  const submit = useOneAtATime()
  const set = (next: NewEndpoint): void => {
    setEndpoint(next)
    renewKey()
  }
  const change = (changed: Partial<NewEndpoint>): void => set({ ...endpoint, ...changed })
  return (
    <section className="card" aria-labelledby="new-endpoint">
      <h2 id="new-endpoint">Add an endpoint</h2>
      <form
        className="stack"
        onSubmit={(event) => {
          event.preventDefault()
          const request = { body: endpoint, idempotencyKey }
          submit((onSettled) => create.mutate(request, { onSuccess: () => set(empty), onSettled }))
        }}
      >
        <EndpointFields
          url={endpoint.url}
          description={endpoint.description ?? ''}
          onChange={change}
        />
        <label>
          Signature
          <select
            value={endpoint.signing}
            onChange={(event) =>
              change({ signing: event.target.value === 'ed25519' ? 'ed25519' : 'hmac' })
            }
          >
            <option value="hmac">HMAC with a shared secret</option>
            <option value="ed25519">Ed25519 with a public key</option>
          </select>
        </label>
        <EventTypes
          chosen={endpoint.eventTypes}
          onChange={(chosen) => change({ eventTypes: chosen })}
        />
        {create.error && <Failure error={create.error} />}
        <div className="row">
          <Button type="submit" kind="main" disabled={create.isPending}>
            {create.isPending ? 'Adding …' : 'Add'}
          </Button>
        </div>
      </form>
      {create.data && <Secret created={create.data} onClose={create.reset} />}
    </section>
  )
}

interface SecretProps {
  readonly created: {
    readonly secret: string | null
    readonly endpoint: { readonly secrets: readonly { readonly publicKey: string | null }[] }
  }
  readonly onClose: () => void
}

/** What a receiver verifies deliveries with: a secret that is shown once, or a public key. */
export function Secret({ created: { secret, endpoint }, onClose }: SecretProps): ReactNode {
  if (secret !== null)
    return <ShownOnce label="Secret of the endpoint" text={secret} onClose={onClose} />
  const publicKey = endpoint.secrets[0]?.publicKey ?? ''
  return (
    <div role="status">
      <p>Deliveries are signed with a new key. Its public key:</p>
      <Copyable text={publicKey} />
    </div>
  )
}
