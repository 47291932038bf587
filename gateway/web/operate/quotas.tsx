import { useInfiniteQuery, useQuery } from '@tanstack/react-query'
import { Link, useParams } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import {
  type AccountQuota,
  type CreditQuota,
  accountQuotaQuery,
  creditQuotaQuery,
  everyAppQuery,
  networkQuotaQuery,
  useUpdateAccountQuota,
  useUpdateCreditQuota,
} from '../api/every-app.ts'
import { Micros } from '../ui/amount.tsx'
import { formatCount, parseDollars, toDollarText } from '../ui/amounts.ts'
import { Answer } from '../ui/answer.tsx'
import { ValueForm } from '../ui/form/value-form.tsx'
import { dollarsHint, wholeNumber } from '../ui/form/values.ts'
import { Name } from '../ui/name.tsx'
import { Page } from '../ui/page.tsx'
import { Empty } from '../ui/states.tsx'

/** The quotas of an app and of its owners: what is used, and what is allowed. */
export function Quotas(): ReactNode {
  const { clientId } = useParams({ from: '/operate/apps/$clientId' })
  const apps = useInfiniteQuery(everyAppQuery(clientId))
  return (
    <Page title="Quotas of an app" about={<Link to="/operate/apps">All apps</Link>}>
      <Answer query={apps} rows={4}>
        {({ pages }) => {
          const app = pages.flatMap((page) => page.apps).find((one) => one.clientId === clientId)
          if (app === undefined) return <Empty>There is no app {clientId}.</Empty>
          return (
            <>
              <p>
                <Link to="/$clientId" params={{ clientId }}>
                  <Name>{app.name}</Name>
                </Link>{' '}
                <code>{clientId}</code>
              </p>
              <Credit clientId={clientId} />
              {app.ownerEmails.map((email) => (
                <Owner key={email} email={email} />
              ))}
            </>
          )
        }}
      </Answer>
    </Page>
  )
}

function Credit({ clientId }: { clientId: string }): ReactNode {
  const quota = useQuery(creditQuotaQuery(clientId))
  return (
    <section className="card" aria-labelledby="credit">
      <h2 id="credit">Credit given through the API</h2>
      <Answer query={quota} rows={2}>
        {(data) => (
          <>
            <p>
              Its users have not spent <Micros value={data.outstandingUsdMicros} /> of at most{' '}
              <Micros value={data.maxUsdMicros} />.
            </p>
            <ChangeCredit quota={data} />
          </>
        )}
      </Answer>
    </section>
  )
}

const deployment = { label: 'Use the deployment’s', value: null }

const ChangeCredit = ({ quota }: { quota: CreditQuota }): ReactNode => (
  <ValueForm
    label="Quota, in dollars"
    present={toDollarText(quota.maxUsdMicros)}
    parse={(text) => parseDollars(text, 0n)}
    hint={dollarsHint}
    change={useUpdateCreditQuota(quota.clientId)}
    reset={deployment}
  />
)

function Owner({ email }: { email: string }): ReactNode {
  const apps = useQuery(accountQuotaQuery(email))
  const network = useQuery(networkQuotaQuery(email))
  return (
    <section className="card" aria-label={`Owner ${email}`}>
      <h2>
        Owner <Name>{email}</Name>
      </h2>
      <Answer query={apps} rows={2}>
        {(data) => (
          <>
            <p>
              The account owns {formatCount(data.apps)} of at most {formatCount(data.appsMax)} apps.
            </p>
            <ChangeApps quota={data} />
          </>
        )}
      </Answer>
      <Answer query={network} rows={1}>
        {({ maxUsdMicros, unpaidUsdMicros }) => (
          <p>
            Its apps hold <Micros value={unpaidUsdMicros} /> of the <Micros value={maxUsdMicros} />{' '}
            that the account can pay for calls.
          </p>
        )}
      </Answer>
    </section>
  )
}

const appsMax = 1_000_000

const ChangeApps = ({ quota }: { quota: AccountQuota }): ReactNode => (
  <ValueForm
    label="Apps at most"
    present={String(quota.appsMax)}
    parse={wholeNumber(0, appsMax)}
    hint={`Type a whole number up to ${formatCount(appsMax)}, without commas.`}
    change={useUpdateAccountQuota(quota.email)}
    reset={deployment}
  />
)
