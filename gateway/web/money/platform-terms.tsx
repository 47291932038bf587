import { useQuery } from '@tanstack/react-query'
import { type ReactNode, useState } from 'react'
import type { Schemas } from '../api/client.ts'
import { billingSettingsQuery, useUpdateBillingSettings } from '../api/money.ts'
import { formatCount } from '../ui/amounts.ts'
import { Answer } from '../ui/answer.tsx'
import { Button } from '../ui/button.tsx'
import { Instant } from '../ui/instant.tsx'
import { Failure } from '../ui/states.tsx'

type Settings = Schemas['BillingSettings']

/** What only platform admins set of an app: the platform's cut, and the cap of users. */
export function PlatformTerms({ clientId }: { clientId: string }): ReactNode {
  const settings = useQuery(billingSettingsQuery(clientId))
  return (
    <section className="card" aria-labelledby="terms">
      <h2 id="terms">The platform’s terms</h2>
      <Answer query={settings} rows={3}>
        {(data) => (
          <>
            <Terms settings={data} />
            <Changes settings={data} />
          </>
        )}
      </Answer>
    </section>
  )
}

const percent = (value: number | null): string => (value === null ? 'none' : `${value} %`)

const Terms = ({ settings }: { settings: Settings }): ReactNode => (
  <dl className="facts">
    <div>
      <dt>Cut of network fees</dt>
      <dd>
        {percent(settings.platformCutPercent)}
        {settings.plannedCuts.map(({ percent: planned, since }) => (
          <span key={since}>
            , {percent(planned)} from <Instant at={since} />
          </span>
        ))}
      </dd>
    </div>
    <div>
      <dt>Active users at most</dt>
      <dd>
        {formatCount(settings.endUserCap)}
        {settings.isDefaultCap && ', the deployment’s'}
      </dd>
    </div>
  </dl>
)

/** Returns a percentage with at most two decimals; null for any other text. */
const parsePercent = (text: string): number | null =>
  /^\d{1,3}(\.\d{1,2})?$/.test(text) && Number(text) <= 100 ? Number(text) : null

const capMax = 1_000_000
const parseCap = (text: string): number | null =>
  /^[1-9]\d{0,6}$/.test(text) && Number(text) <= capMax ? Number(text) : null

function Changes({ settings }: { settings: Settings }): ReactNode {
  const update = useUpdateBillingSettings(settings.clientId)
  return (
    <>
      <Term
        label="Cut, in percent"
        present={settings.platformCutPercent}
        parse={parsePercent}
        hint="Type a percentage up to 100 with at most 2 decimals, such as 12.5."
        reset="Take none"
        isBusy={update.isPending}
        onChange={(platformCutPercent) => update.mutate({ platformCutPercent })}
      />
      <Term
        label="Active users at most"
        present={settings.endUserCap}
        parse={parseCap}
        hint={`Type a whole number from 1 to ${formatCount(capMax)}, without commas.`}
        reset="Use the deployment’s"
        isBusy={update.isPending}
        onChange={(endUserCap) => update.mutate({ endUserCap })}
      />
      <p className="soft">
        Another cut begins a minute after it is set, and changes no past price.
      </p>
      {update.error && <Failure error={update.error} />}
    </>
  )
}

interface TermProps {
  readonly label: string
  readonly present: number | null
  readonly parse: (text: string) => number | null
  /** Shown for a text that cannot be parsed. */
  readonly hint: string
  readonly reset: string
  readonly isBusy: boolean
  readonly onChange: (value: number | null) => void
}

function Term({ label, present, parse, hint, reset, isBusy, onChange }: TermProps): ReactNode {
  const [text, setText] = useState(present === null ? '' : String(present))
  const value = parse(text.trim())
  return (
    <>
      <form
        className="row"
        onSubmit={(event) => {
          event.preventDefault()
          if (value !== null) onChange(value)
        }}
      >
        <label>
          {label}
          <input
            inputMode="decimal"
            maxLength={10}
            value={text}
            onChange={(event) => setText(event.target.value)}
          />
        </label>
        <Button type="submit" disabled={value === null || isBusy}>
          Set
        </Button>
        <Button
          disabled={isBusy}
          onClick={() => {
            setText('')
            onChange(null)
          }}
        >
          {reset}
        </Button>
      </form>
      {value === null && text !== '' && <p role="status">{hint}</p>}
    </>
  )
}
