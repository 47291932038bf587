import { useQuery } from '@tanstack/react-query'
import { Link, useParams, useSearch } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import { type AppInUse, appsInUseQuery } from '../api/me.ts'
import { Answer } from '../ui/answer.tsx'
import { Instant } from '../ui/instant.tsx'
import { Page } from '../ui/page.tsx'
import { Empty } from '../ui/states.tsx'
import { Access } from './access.tsx'
import { Left } from './left.tsx'
import { Payments } from './payments.tsx'
import { type Part, parts } from './search.ts'
import { Spent } from './spent.tsx'

const from = '/me/$ownAppId'

/** What the person has and did in one app. */
export function MyApp(): ReactNode {
  const { ownAppId } = useParams({ from })
  const apps = useQuery(appsInUseQuery)
  const app = apps.data?.find(({ clientId }) => clientId === ownAppId)
  return (
    <Page title={app?.appName ?? 'My use'} about={<Link to="/me">All apps that I use</Link>}>
      <Answer query={apps}>{() => <Content app={app} />}</Answer>
    </Page>
  )
}

function Content({ app }: { app: AppInUse | undefined }): ReactNode {
  const { part = 'usage' } = useSearch({ from })
  if (app === undefined) return <Empty>You have never logged in to this app.</Empty>
  if (app.status === 'inactive') return <Ended app={app} />
  return (
    <>
      <nav className="tabs" aria-label="Parts of my use">
        {parts.map((one) => (
          <Link
            key={one}
            from={from}
            to="."
            search={one === 'usage' ? {} : { part: one }}
            aria-current={one === part ? 'true' : undefined}
            // Every search contains the empty one of the first part.
            activeOptions={{ exact: true }}
          >
            {partNames[one]}
          </Link>
        ))}
      </nav>
      <ShownPart part={part} app={app} />
    </>
  )
}

const partNames: Readonly<Record<Part, string>> = {
  usage: 'Spent and left',
  access: 'Keys and logins',
  payments: 'Payments',
}

function ShownPart({ part, app }: { part: Part; app: AppInUse }): ReactNode {
  const { clientId } = app
  if (part === 'access') return <Access clientId={clientId} />
  if (part === 'payments') return <Payments clientId={clientId} />
  return (
    <>
      <Left clientId={clientId} />
      <Spent app={app} />
    </>
  )
}

const Ended = ({ app }: { app: AppInUse }): ReactNode => (
  <p className="problem">
    <span>
      <strong>This app has ended your access</strong>
      {app.deactivatedAt !== null && (
        <>
          {' '}
          on <Instant at={app.deactivatedAt} />
        </>
      )}
      . Your keys, logins and tokens work no more, and nothing can be changed here. Its owner can
      give you access again.
    </span>
  </p>
)
