import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import { newestTicketQuery } from '../api/setup.ts'

/** Leads to the set-up as long as the app has no ticket. */
export function SetupHint({ clientId }: { clientId: string }): ReactNode {
  const { data } = useQuery(newestTicketQuery(clientId))
  if (data !== null) return null
  return (
    <section className="card" aria-labelledby="setup-hint">
      <div className="head">
        <div>
          <h2 id="setup-hint">No ticket has arrived yet</h2>
          <p className="soft">The set-up leads from here to the first authorised job.</p>
        </div>
        <Link className="button main-action" to="/$clientId/setup" params={{ clientId }}>
          Set up
        </Link>
      </div>
    </section>
  )
}
