import { type ReactNode, useState } from 'react'
import type { UserRef } from '../api/users.ts'
import { Micros } from '../ui/amount.tsx'
import { formatExactMicros, parseDollars } from '../ui/amounts.ts'
import { Button } from '../ui/button.tsx'
import { Confirm } from '../ui/confirm.tsx'
import { Name } from '../ui/name.tsx'
import { type Gift, useGiveCredit } from './changes.ts'
import { useIdempotencyKey, useOneAtATime } from '../api/submission.ts'

const reasons = { manual: 'given by us', promo: 'promotion' } as const

/** Gives credit. A repeated submission of the same form gives once. */
export function GiveCredit({ user }: { user: UserRef }): ReactNode {
  const [dollars, setDollars] = useState('')
  const [source, setSource] = useState<Gift['source']>('manual')
  const [feature, setFeature] = useState('')
  const [isAsked, setIsAsked] = useState(false)
  const [idempotencyKey, renewKey] = useIdempotencyKey()
  const give = useGiveCredit(user)
  const submit = useOneAtATime()
  const micros = parseDollars(dollars)
  /** Another content is another gift, so that it needs another key. */
  const edit = (change: () => void): void => {
    change()
    renewKey()
  }
  const featureKey = feature.trim()
  const giveAmount = (amountUsdMicros: string): void => {
    const gift = { amountUsdMicros, source, idempotencyKey }
    submit((onSettled) =>
      give.mutate(featureKey === '' ? gift : { ...gift, featureKey }, {
        onSuccess: () => {
          setIsAsked(false)
          edit(() => setDollars(''))
        },
        onSettled,
      }),
    )
  }
  return (
    <section className="card" aria-labelledby="give">
      <h2 id="give">Give credit</h2>
      <form
        className="row"
        onSubmit={(event) => {
          event.preventDefault()
          if (micros === null) return
          if (give.isError) give.reset()
          setIsAsked(true)
        }}
      >
        <label>
          Amount in dollars
          <input
            required
            inputMode="decimal"
            autoComplete="off"
            pattern="\s*\d{1,10}(\.\d{1,6})?\s*"
            title="Digits, and up to six decimals after a point"
            value={dollars}
            onChange={(event) => edit(() => setDollars(event.target.value))}
            aria-describedby="gift"
          />
        </label>
        <Reason source={source} onChoose={(chosen) => edit(() => setSource(chosen))} />
        <label>
          Only for the feature (optional)
          <input
            maxLength={200}
            placeholder="pipeline:modelId"
            value={feature}
            onChange={(event) => edit(() => setFeature(event.target.value))}
          />
        </label>
        <Button type="submit" kind="main" disabled={micros === null}>
          Give credit
        </Button>
      </form>
      <p className="soft" id="gift">
        {describe(dollars, micros)}
      </p>
      {isAsked && micros !== null && (
        <Confirm
          title="Give this credit?"
          effect={
            <>
              <Name>{user.externalUserId}</Name> gets exactly {formatExactMicros(micros)}
              {featureKey === '' ? '' : ', for one feature only'}, and may spend it at once. Given
              credit cannot be taken back here.
            </>
          }
          action="Give"
          isBusy={give.isPending}
          error={give.error}
          onConfirm={() => giveAmount(micros)}
          onClose={() => setIsAsked(false)}
        />
      )}
      {give.isSuccess && (
        <p role="status">
          Gave <Micros value={give.data.grant.amountUsdMicros} />. The user may now spend{' '}
          <Micros value={give.data.remainingUsdMicros} />.
        </p>
      )}
    </section>
  )
}

interface ReasonProps {
  readonly source: Gift['source']
  readonly onChoose: (source: Gift['source']) => void
}

const Reason = ({ source, onChoose }: ReasonProps): ReactNode => (
  <label>
    Reason
    <select
      value={source}
      onChange={(event) => onChoose(event.target.value === 'promo' ? 'promo' : 'manual')}
    >
      {Object.entries(reasons).map(([value, text]) => (
        <option key={value} value={value}>
          {text}
        </option>
      ))}
    </select>
  </label>
)

function describe(dollars: string, micros: string | null): string {
  if (micros !== null)
    return `Gives exactly ${formatExactMicros(micros)}. Given credit cannot be taken back here.`
  if (dollars.trim() === '') return 'Credit is added to the balance; earlier credit stays.'
  return 'Enter an amount above 0 with digits and a point, such as 25 or 0.05; at most 1000000000.'
}
