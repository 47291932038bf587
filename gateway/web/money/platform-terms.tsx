import { useQuery } from '@tanstack/react-query'
import type { ReactNode } from 'react'
import type { Schemas } from '../api/client.ts'
import { billingSettingsQuery, useUpdateBillingSettings } from '../api/money.ts'
import { formatCount } from '../ui/amounts.ts'
import { Answer } from '../ui/answer.tsx'
import { ValueForm } from '../ui/form/value-form.tsx'
import { wholeNumber } from '../ui/form/values.ts'
import { Instant } from '../ui/instant.tsx'

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

function Changes({ settings }: { settings: Settings }): ReactNode {
  const { clientId, platformCutPercent, plannedCuts, endUserCap } = settings
  const cut = useUpdateBillingSettings(clientId, (percent: number | null) => ({
    platformCutPercent: percent,
  }))
  const cap = useUpdateBillingSettings(clientId, (users: number | null) => ({ endUserCap: users }))
  const [latestCut = platformCutPercent] = plannedCuts.slice(-1).map((planned) => planned.percent)
  return (
    <>
      <ValueForm
        label="Cut, in percent"
        present={latestCut?.toString() ?? ''}
        parse={parsePercent}
        hint="Type a percentage up to 100 with at most 2 decimals, such as 12.5."
        action="Save the cut"
        change={cut}
        reset={{ label: 'Take none', value: null }}
      />
      <ValueForm
        label="Active users at most"
        present={String(endUserCap)}
        parse={wholeNumber(1, capMax)}
        hint={`Type a whole number from 1 to ${formatCount(capMax)}, without commas.`}
        action="Save the cap of users"
        change={cap}
        reset={{ label: 'Use the deployment’s', value: null }}
      />
      <p className="soft">
        Another cut begins a minute after it is set, and changes no past price.
      </p>
    </>
  )
}
