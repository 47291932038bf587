import { useQuery } from '@tanstack/react-query'
import type { ReactNode } from 'react'
import type { Schemas } from '../api/client.ts'
import { overageQuery, useUpdateOverage } from '../api/money.ts'
import { Micros } from '../ui/amount.tsx'
import { parseDollars, toDollarText } from '../ui/amounts.ts'
import { Answer } from '../ui/answer.tsx'
import { ValueForm } from '../ui/form/value-form.tsx'
import { dollarsHint } from '../ui/form/values.ts'

interface CeilingProps {
  readonly clientId: string
  readonly canEdit: boolean
}

/** How much unpaid usage a user with a card may run up. */
export function Ceiling({ clientId, canEdit }: CeilingProps): ReactNode {
  const overage = useQuery(overageQuery(clientId))
  return (
    <section className="card" aria-labelledby="ceiling">
      <h2 id="ceiling">Ceiling of unpaid usage</h2>
      <Answer query={overage} rows={2}>
        {(data) => (
          <>
            <p>
              A user of a paid plan with a card may owe up to{' '}
              <Micros value={data.ceilingUsdMicros} />
              {data.isDefault && ', the default'}. The lowest possible ceiling is{' '}
              <Micros value={data.minimumCeilingUsdMicros} />.
            </p>
            {canEdit && <Change overage={data} />}
          </>
        )}
      </Answer>
    </section>
  )
}

const Change = ({ overage }: { overage: Schemas['Overage'] }): ReactNode => (
  <ValueForm
    label="Ceiling, in dollars"
    present={toDollarText(overage.ceilingUsdMicros)}
    parse={parseDollars}
    hint={dollarsHint}
    action="Save the ceiling"
    change={useUpdateOverage(overage.clientId)}
    reset={overage.isDefault ? undefined : { label: 'Use the default', value: null }}
  />
)
