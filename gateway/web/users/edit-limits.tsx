import { type ReactNode, useState } from 'react'
import type { Schemas } from '../api/client.ts'
import type { LimitedRef } from '../api/users.ts'
import { parseDollars, toDollarText } from '../ui/amounts.ts'
import { Button } from '../ui/button.tsx'
import { Failure } from '../ui/states.tsx'
import { type NewLimits, useSetLimits } from './changes.ts'

type LimitsData = Schemas['Limits']
type Price = LimitsData['maxPrices'][number]
type PriceDraft = { readonly type: Price['type'] } & {
  readonly app: string
  readonly maxWei: string
}

interface Draft {
  readonly day: string
  readonly session: string
  readonly calls: string
  readonly sessions: string
  readonly prices: readonly PriceDraft[]
}

interface EditLimitsProps {
  readonly user: LimitedRef
  readonly limits: LimitsData
}

const sessionTypes = ['live', 'lv2v', 'fixed'] as const
const amountRules = { inputMode: 'decimal', pattern: '\\s*\\d{1,10}(\\.\\d{1,6})?\\s*' } as const

/** Replaces the limits of a user. An empty field sets no limit. */
export function EditLimits({ user, limits }: EditLimitsProps): ReactNode {
  /** Follows the stored limits until it is edited. */
  const [edited, setEdited] = useState<Draft | null>(null)
  const draft = edited ?? toDraft(limits)
  const set = useSetLimits(user)
  const { wanted, problem } = toLimits(draft)
  const edit = (change: Partial<Draft>): void => {
    if (set.isSuccess) set.reset()
    setEdited({ ...draft, ...change })
  }
  return (
    <section className="card" aria-labelledby="edit-limits">
      <h2 id="edit-limits">Set limits</h2>
      <form
        className="form"
        onSubmit={(event) => {
          event.preventDefault()
          if (!wanted) return
          const clear = (latest: Draft | null) => (latest === edited ? null : latest)
          set.mutate(wanted, { onSuccess: () => setEdited(clear) })
        }}
      >
        <div className="row">
          <label>
            Dollars on a day (UTC)
            <input
              {...amountRules}
              value={draft.day}
              onChange={(event) => edit({ day: event.target.value })}
            />
          </label>
          <label>
            Dollars in one session
            <input
              {...amountRules}
              value={draft.session}
              onChange={(event) => edit({ session: event.target.value })}
            />
          </label>
          <label>
            Calls in a minute
            <input
              type="number"
              min={1}
              max={1_000_000}
              value={draft.calls}
              onChange={(event) => edit({ calls: event.target.value })}
            />
          </label>
          <label>
            Sessions at the same time
            <input
              type="number"
              min={1}
              max={10_000}
              value={draft.sessions}
              onChange={(event) => edit({ sessions: event.target.value })}
            />
          </label>
        </div>
        <Prices prices={draft.prices} onChange={(prices) => edit({ prices })} />
        {problem !== undefined && edited !== null && <p role="status">{problem}</p>}
        <div className="row">
          <Button type="submit" kind="main" disabled={wanted === undefined || set.isPending}>
            {set.isPending ? 'Saving …' : 'Save limits'}
          </Button>
        </div>
      </form>
      <p className="soft">
        An empty field sets no limit. New limits apply within seconds; running calls continue.
      </p>
      {set.error && <Failure error={set.error} />}
      {set.isSuccess && edited === null && <p role="status">Saved.</p>}
    </section>
  )
}

interface PricesProps {
  readonly prices: readonly PriceDraft[]
  readonly onChange: (prices: readonly PriceDraft[]) => void
}

function Prices({ prices, onChange }: PricesProps): ReactNode {
  const change = (index: number, changed: Partial<PriceDraft>): void =>
    onChange(prices.map((price, at) => (at === index ? { ...price, ...changed } : price)))
  return (
    <>
      {prices.map((price, index) => (
        <fieldset className="row" key={index}>
          <legend>Highest price {index + 1}</legend>
          <label>
            Session type
            <select
              value={price.type}
              onChange={(event) => {
                const type = sessionTypes.find((one) => one === event.target.value)
                if (type) change(index, { type })
              }}
            >
              {sessionTypes.map((type) => (
                <option key={type}>{type}</option>
              ))}
            </select>
          </label>
          <label>
            Application (empty: every one)
            <input
              maxLength={200}
              value={price.app}
              onChange={(event) => change(index, { app: event.target.value })}
            />
          </label>
          <label>
            Wei for one unit
            <input
              required
              inputMode="numeric"
              pattern="[1-9][0-9]{0,18}"
              value={price.maxWei}
              onChange={(event) => change(index, { maxWei: event.target.value })}
            />
          </label>
          <Button
            isSmall
            aria-label={`Remove highest price ${index + 1}`}
            onClick={() => onChange(prices.filter((_, at) => at !== index))}
          >
            Remove
          </Button>
        </fieldset>
      ))}
      {prices.length < 50 && (
        <div>
          <Button
            isSmall
            onClick={() => onChange([...prices, { type: 'live', app: '', maxWei: '' }])}
          >
            Add a highest price
          </Button>
        </div>
      )}
    </>
  )
}

const toDraft = (limits: LimitsData): Draft => ({
  day: limits.usdMicrosPerDay === null ? '' : toDollarText(limits.usdMicrosPerDay),
  session: limits.usdMicrosPerSession === null ? '' : toDollarText(limits.usdMicrosPerSession),
  calls: limits.callsPerMinute?.toString() ?? '',
  sessions: limits.concurrentSessions?.toString() ?? '',
  prices: limits.maxPrices.map(({ type, app, maxWei }) => ({ type, app: app ?? '', maxWei })),
})

type Checked =
  | { readonly wanted: NewLimits; readonly problem?: undefined }
  | { readonly wanted?: undefined; readonly problem: string }

/** Returns the limits of a draft, or what to correct first. */
function toLimits({ day, session, calls, sessions, prices }: Draft): Checked {
  const perDay = day.trim() === '' ? undefined : parseDollars(day)
  const perSession = session.trim() === '' ? undefined : parseDollars(session)
  if (perDay === null || perSession === null)
    return {
      problem: `Dollars ${perDay === null ? 'on a day' : 'in one session'} must be an amount above 0 with digits and a point, such as 25 or 0.05.`,
    }
  const limits = {
    ...(perDay !== undefined && { usdMicrosPerDay: perDay }),
    ...(perSession !== undefined && { usdMicrosPerSession: perSession }),
    ...(calls !== '' && { callsPerMinute: Number(calls) }),
    ...(sessions !== '' && { concurrentSessions: Number(sessions) }),
  }
  if (Object.keys(limits).length === 0 && prices.length === 0)
    return { problem: 'Fill in a limit. To remove all of them, use “Remove all limits”.' }
  const maxPrices = prices.map(({ app, ...price }) => ({
    ...price,
    ...(app.trim() !== '' && { app: app.trim() }),
  }))
  return { wanted: { ...limits, maxPrices } }
}
