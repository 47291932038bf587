import { type ReactNode, useState } from 'react'
import { type Plan, useUpdateStarter } from '../api/plans.ts'
import { parseDollars, toDollarText } from '../ui/amounts.ts'
import { Button } from '../ui/button.tsx'
import { Failure } from '../ui/states.tsx'

/** Changes what new users get for nothing. */
export function Starter({
  clientId,
  plans,
}: {
  clientId: string
  plans: readonly Plan[]
}): ReactNode {
  const starter = plans.find(({ isStarterDefault }) => isStarterDefault)
  const [text, setText] = useState(toDollarText(starter?.includedUsdMicros ?? '0'))
  const update = useUpdateStarter(clientId)
  const micros = parseDollars(text, 0n)
  if (!starter) return null
  return (
    <section className="card" aria-labelledby="starter">
      <h2 id="starter">Starter</h2>
      <form
        className="row"
        onSubmit={(event) => {
          event.preventDefault()
          if (micros !== null) update.mutate(micros)
        }}
      >
        <label>
          Included usage of each period, in dollars
          <input
            inputMode="decimal"
            required
            maxLength={20}
            value={text}
            onChange={(event) => {
              setText(event.target.value)
              if (update.isSuccess) update.reset()
            }}
          />
        </label>
        <Button type="submit" disabled={update.isPending || micros === null}>
          {update.isPending ? 'Saving …' : 'Save'}
        </Button>
      </form>
      {micros === null && <p role="status">Type dollars with at most 6 decimals, such as 5.</p>}
      <p className="soft">
        More included usage reaches users of Starter at once, less with their next period.
      </p>
      {update.error && <Failure error={update.error} />}
      {update.isSuccess && <p role="status">Saved.</p>}
    </section>
  )
}
