import { useInfiniteQuery, useQuery } from '@tanstack/react-query'
import { Link, useParams } from '@tanstack/react-router'
import { type ReactNode, useState } from 'react'
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
import { Button } from '../ui/button.tsx'
import { Name } from '../ui/name.tsx'
import { Page } from '../ui/page.tsx'
import { Empty, Failure } from '../ui/states.tsx'

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
            <ChangeCredit key={data.maxUsdMicros} quota={data} />
          </>
        )}
      </Answer>
    </section>
  )
}

function ChangeCredit({ quota }: { quota: CreditQuota }): ReactNode {
  const [text, setText] = useState(toDollarText(quota.maxUsdMicros))
  const update = useUpdateCreditQuota(quota.clientId)
  const micros = parseDollars(text, 0n)
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
          Quota, in dollars
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
        <Button disabled={update.isPending} onClick={() => update.mutate(null)}>
          Use the deployment’s
        </Button>
      </form>
      {micros === null && <p role="status">Type dollars with at most 6 decimals, such as 20.</p>}
      {update.error && <Failure error={update.error} />}
    </>
  )
}

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
            <ChangeApps key={data.appsMax} quota={data} />
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

function ChangeApps({ quota }: { quota: AccountQuota }): ReactNode {
  const [text, setText] = useState(String(quota.appsMax))
  const update = useUpdateAccountQuota(quota.email)
  return (
    <>
      <form
        className="row"
        onSubmit={(event) => {
          event.preventDefault()
          update.mutate(Number(text))
        }}
      >
        <label>
          Apps at most
          <input
            type="number"
            required
            min={0}
            max={appsMax}
            step={1}
            value={text}
            onChange={(event) => setText(event.target.value)}
          />
        </label>
        <Button type="submit" disabled={update.isPending}>
          Set
        </Button>
        <Button disabled={update.isPending} onClick={() => update.mutate(null)}>
          Use the deployment’s
        </Button>
      </form>
      {update.error && <Failure error={update.error} />}
    </>
  )
}
