import { type ReactNode, useState } from 'react'
import { type SignerSecrets, useSignerChanges } from '../api/operate.ts'
import { Button } from '../ui/button.tsx'
import { Failure } from '../ui/states.tsx'

/** A form that makes a signer. Without apps it signs for all of them. */
export function NewSigner({
  onMade,
}: {
  onMade: (name: string, made: SignerSecrets) => void
}): ReactNode {
  const [name, setName] = useState('')
  const [apps, setApps] = useState('')
  const [mayPushEvents, setMayPushEvents] = useState(false)
  const { create } = useSignerChanges()
  const clientIds = apps.split(/[\s,]+/).filter(Boolean)
  const make = (): void => {
    const signer = { name, allApps: clientIds.length === 0, clientIds, mayPushEvents }
    create.mutate(signer, {
      onSuccess: (made) => {
        onMade(name, made)
        setName('')
        setApps('')
      },
    })
  }
  return (
    <section className="card" aria-labelledby="new-signer">
      <h2 id="new-signer">Make a signer</h2>
      <form
        className="stack"
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
        <Button type="submit" kind="main" disabled={create.isPending}>
          {create.isPending ? 'Making …' : 'Make'}
        </Button>
      </form>
      {create.error && <Failure error={create.error} />}
    </section>
  )
}
