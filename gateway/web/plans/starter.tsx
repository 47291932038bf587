import type { ReactNode } from 'react'
import { type Plan, useUpdateStarter } from '../api/plans.ts'
import { parseDollars, toDollarText } from '../ui/amounts.ts'
import { ValueForm } from '../ui/form/value-form.tsx'
import { dollarsHint } from '../ui/form/values.ts'

interface StarterProps {
  readonly clientId: string
  readonly plans: readonly Plan[]
}

/** Changes what new users get for nothing. */
export function Starter({ clientId, plans }: StarterProps): ReactNode {
  const starter = plans.find(({ isStarterDefault }) => isStarterDefault)
  const update = useUpdateStarter(clientId)
  if (!starter) return null
  return (
    <section className="card" aria-labelledby="starter">
      <h2 id="starter">Starter</h2>
      <ValueForm
        label="Included usage of each period, in dollars"
        present={toDollarText(starter.includedUsdMicros ?? '0')}
        parse={(text) => parseDollars(text, 0n)}
        hint={dollarsHint}
        change={update}
      />
      <p className="soft">
        More included usage reaches users of Starter at once, less with their next period.
      </p>
    </section>
  )
}
