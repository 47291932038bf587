import { useQuery } from '@tanstack/react-query'
import { type ReactNode, useState } from 'react'
import type { Schemas } from '../api/client.ts'
import { overageQuery, useUpdateOverage } from '../api/money.ts'
import { Micros } from '../ui/amount.tsx'
import { parseDollars, toDollarText } from '../ui/amounts.ts'
import { Answer } from '../ui/answer.tsx'
import { Button } from '../ui/button.tsx'
import { Failure } from '../ui/states.tsx'

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

function Change({ overage }: { overage: Schemas['Overage'] }): ReactNode {
  const [text, setText] = useState(toDollarText(overage.ceilingUsdMicros))
  const update = useUpdateOverage(overage.clientId)
  const micros = parseDollars(text)
  return (
    <>
      <form
        className="row"
        onSubmit={(event) => {
          event.preventDefault()
          if (micros !== null) update.mutate(micros)
        }}
      >
        <label>
          Ceiling, in dollars
          <input
            inputMode="decimal"
            required
            maxLength={20}
            value={text}
            onChange={(event) => setText(event.target.value)}
          />
        </label>
        <Button type="submit" disabled={micros === null || update.isPending}>
          Set
        </Button>
        {!overage.isDefault && (
          <Button
            disabled={update.isPending}
            onClick={() =>
              update.mutate(null, {
                onSuccess: ({ ceilingUsdMicros }) => setText(toDollarText(ceilingUsdMicros)),
              })
            }
          >
            Use the default
          </Button>
        )}
      </form>
      {micros === null && <p role="status">Type dollars with at most 6 decimals, such as 20.</p>}
      {update.error && <Failure error={update.error} />}
    </>
  )
}
