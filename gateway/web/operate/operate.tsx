import { useQuery } from '@tanstack/react-query'
import { Link, Outlet } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import { sessionQuery } from '../api/queries.ts'
import { Page } from '../ui/page.tsx'
import { Empty } from '../ui/states.tsx'

/** The frame of the views for platform admins. The server refuses others with each request, too. */
export function Operate(): ReactNode {
  const { data: session } = useQuery(sessionQuery)
  if (session === undefined) return null
  return session.isPlatformAdmin ? <Outlet /> : <NoPermission email={session.email} />
}

const NoPermission = ({ email }: { email: string }): ReactNode => (
  <Page title="No permission">
    <section className="card" aria-label="No permission">
      <Empty>
        <p>
          Only platform admins see this part, and {email} is none. An operator can change it:{' '}
          <code>./tollgate account change --email {email} --platform-admin yes</code>
        </p>
        <Link className="button" to="/">
          Your apps
        </Link>
      </Empty>
    </section>
  </Page>
)
