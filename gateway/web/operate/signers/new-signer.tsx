import { type ReactNode, useState } from 'react'
import type { SecretsChange, SignerWish } from '../../api/operate.ts'
import { useIdempotencyKey } from '../../api/submission.ts'
import { Button } from '../../ui/button.tsx'
import { Failure } from '../../ui/states.tsx'

interface NewSignerProps {
  readonly create: SecretsChange<SignerWish>
  /** Whether secrets are shown, which a further signer's would replace. */
  readonly isShown: boolean
}

/** A form that makes a signer. Without apps it signs for all of them. */
export function NewSigner({ create, isShown }: NewSignerProps): ReactNode {
  const [name, setName] = useState('')
  const [apps, setApps] = useState('')
  const [mayPushEvents, setMayPushEvents] = useState(false)
  const [idempotencyKey, renewKey] = useIdempotencyKey()
  const clientIds = apps.split(/[\s,]+/).filter(Boolean)
  const make = (): void => {
    const allApps = clientIds.length === 0
    const signer = { name, allApps, clientIds, mayPushEvents, idempotencyKey }
    create.mutate(signer, {
      onSuccess: () => {
        setName('')
        setApps('')
        setMayPushEvents(false)
        renewKey()
      },
    })
  }
  return (
    <section className="card" aria-labelledby="new-signer">
      <h2 id="new-signer">Make a signer</h2>
      <form
        className="stack"
        onChange={renewKey}
        onSubmit={(event) => {
          event.preventDefault()
          make()
        }}
      >
        <label>
          Name
          <input
            required
            maxLength={63}
            pattern="[a-z0-9][a-z0-9\-]*"
            title="Lower-case letters, digits and hyphens"
            value={name}
            onChange={(event) => setName(event.target.value)}
          />
        </label>
        <label>
          Client ids of its apps, or nothing for all apps
          <input value={apps} onChange={(event) => setApps(event.target.value)} />
        </label>
        <label className="choice">
          <input
            type="checkbox"
            checked={mayPushEvents}
            onChange={(event) => setMayPushEvents(event.target.checked)}
          />
          It may push events of these apps
        </label>
        <Button type="submit" kind="main" disabled={create.isPending || isShown}>
          {create.isPending ? 'Making …' : 'Make'}
        </Button>
      </form>
      {isShown && <p className="soft">Store the secrets above first.</p>}
      {create.error && <Failure error={create.error} />}
    </section>
  )
}
