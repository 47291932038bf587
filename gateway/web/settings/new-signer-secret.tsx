import { type ReactNode, useState } from 'react'
import { useSignerSecretChanges } from '../api/settings.ts'
import { useIdempotencyKey, useOneAtATime } from '../api/submission.ts'
import { Button } from '../ui/button.tsx'
import { Instant } from '../ui/instant.tsx'
import { ShownOnce } from '../ui/shown-once.tsx'
import { Failure } from '../ui/states.tsx'

type Purpose = 'decisions' | 'events'

/** When the older secrets of the same purpose end: seconds of overlap, or never. */
const overlaps = [
  ['', 'stay valid'],
  ['86400', 'end in a day'],
  ['0', 'end at once'],
] as const

/** Makes a secret, and shows it once. */
export function NewSignerSecret({ clientId }: { clientId: string }): ReactNode {
  const [purpose, setPurpose] = useState<Purpose>('decisions')
  const [overlap, setOverlap] = useState('')
  const { create } = useSignerSecretChanges(clientId)
  const [idempotencyKey, renewKey] = useIdempotencyKey()
  const submit = useOneAtATime()
  if (create.data) {
    const { secret, oldSecretsExpireAt } = create.data
    return (
      <ShownOnce label="Secret of the signer" text={secret} onClose={create.reset}>
        {oldSecretsExpireAt !== null && (
          <p>
            Older secrets end <Instant at={oldSecretsExpireAt} />.
          </p>
        )}
      </ShownOnce>
    )
  }
  return (
    <form
      className="row"
      onSubmit={(event) => {
        event.preventDefault()
        const body = { purpose, ...(overlap !== '' && { overlapSeconds: Number(overlap) }) }
        submit((onSettled) =>
          create.mutate({ body, idempotencyKey }, { onSuccess: renewKey, onSettled }),
        )
      }}
    >
      <label>
        Opens
        <select
          value={purpose}
          onChange={({ target }) => {
            setPurpose(target.value === 'events' ? 'events' : 'decisions')
            renewKey()
          }}
        >
          <option>decisions</option>
          <option>events</option>
        </select>
      </label>
      <label>
        Older ones of the same kind
        <select
          value={overlap}
          onChange={({ target }) => {
            setOverlap(target.value)
            renewKey()
          }}
        >
          {overlaps.map(([seconds, text]) => (
            <option key={text} value={seconds}>
              {text}
            </option>
          ))}
        </select>
      </label>
      <Button type="submit" disabled={create.isPending}>
        {create.isPending ? 'Making …' : 'Make a secret'}
      </Button>
      {create.error && <Failure error={create.error} />}
    </form>
  )
}
