import { useQuery } from '@tanstack/react-query'
import { appQuery, sessionQuery } from './queries.ts'

/** What the person may do in an app. The server decides again with each request. */
export function useRights(clientId: string) {
  const { data: app } = useQuery(appQuery(clientId))
  const { data: session } = useQuery(sessionQuery)
  const isPlatformAdmin = session?.isPlatformAdmin ?? false
  return {
    isPlatformAdmin,
    canEdit: app?.canEdit ?? false,
    /** Only owners add, change and remove owners. */
    canOwn: app?.role === 'owner' || isPlatformAdmin,
    accountId: session?.accountId,
  }
}
