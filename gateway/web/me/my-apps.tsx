import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import { type AppInUse, appsInUseQuery, ownBalanceQuery } from '../api/me.ts'
import { Micros } from '../ui/amount.tsx'
import { Answer } from '../ui/answer.tsx'
import { Instant } from '../ui/instant.tsx'
import { Name } from '../ui/name.tsx'
import { Page } from '../ui/page.tsx'
import { Empty } from '../ui/states.tsx'
import { TableBox } from '../ui/table-box.tsx'

/** The apps that the person uses, with what is left in each. */
export function MyApps(): ReactNode {
  const apps = useQuery(appsInUseQuery)
  return (
    <Page title="My use" about="The apps that you have logged in to, as one of their users.">
      <section className="card" aria-label="Apps in use">
        <Answer query={apps}>
          {(all) =>
            all.length > 0 ? (
              <AppTable apps={all} />
            ) : (
              <Empty>
                <p>You use no app yet.</p>
                <p>
                  Log in to an app with this account: then it shows here, with what you spend there.
                </p>
              </Empty>
            )
          }
        </Answer>
      </section>
    </Page>
  )
}

const AppTable = ({ apps }: { apps: readonly AppInUse[] }): ReactNode => (
  <TableBox label="Table of apps in use">
    <table>
      <thead>
        <tr>
          <th scope="col">App</th>
          <th scope="col" className="number">
            May still spend
          </th>
          <th scope="col">Access</th>
          <th scope="col">First login</th>
        </tr>
      </thead>
      <tbody>
        {apps.map((app) => (
          <tr key={app.clientId}>
            <th scope="row">
              <Link to="/me/$ownAppId" params={{ ownAppId: app.clientId }}>
                <Name>{app.appName}</Name>
              </Link>
            </th>
            <td className="number">
              {app.status === 'active' ? (
                <Left clientId={app.clientId} />
              ) : (
                <span className="soft">nothing</span>
              )}
            </td>
            <td>
              {app.status === 'active' ? (
                <span className="badge good">active</span>
              ) : (
                <span className="badge bad">ended</span>
              )}
            </td>
            <td>
              <Instant at={app.createdAt} />
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  </TableBox>
)

function Left({ clientId }: { clientId: string }): ReactNode {
  const { data, error } = useQuery(ownBalanceQuery(clientId))
  if (error) return <span className="soft">unknown</span>
  return data ? <Micros value={data.remainingUsdMicros} /> : '…'
}
