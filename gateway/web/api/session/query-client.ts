import { MutationCache, QueryCache, QueryClient } from '@tanstack/react-query'
import { ApiError } from '../client.ts'
import { sessionQuery } from '../queries.ts'
import { isOfCredential } from './state.ts'

const staleMs = 15_000

/** Repeats only what may succeed the next time. */
const isWorthRepeating = (failures: number, error: Error): boolean =>
  failures < 2 && (!(error instanceof ApiError) || error.status === 0 || error.status >= 500)

const [sessionKey] = sessionQuery.queryKey

/**
 * Returns the store of all answers. A refusal of the credential also reads the session again: if it
 * has ended, the frame shows it above the view. A session that another tab begins is read at once.
 */
export function createQueryClient(): QueryClient {
  const readSession = (): void => void client.invalidateQueries({ queryKey: sessionQuery.queryKey })
  const onError = (error: Error): void => {
    if (isOfCredential(error)) readSession()
  }
  const follow = createSessionFollower(() => client, readSession)
  const client = new QueryClient({
    queryCache: new QueryCache({
      onError: (error, { queryKey }) =>
        queryKey[0] === sessionKey ? follow.onError() : onError(error),
      onSuccess: (_data, { queryKey }) => {
        if (queryKey[0] === sessionKey) follow.onRead()
      },
    }),
    mutationCache: new MutationCache({ onError }),
    defaultOptions: { queries: { staleTime: staleMs, retry: isWorthRepeating } },
  })
  return client
}

/**
 * Tells other tabs which session this one has read, and follows theirs. After a new session of the
 * same account, what failed meanwhile is read again; after one of another account, everything is.
 */
function createSessionFollower(getClient: () => QueryClient, readSession: () => void) {
  const channel = new BroadcastChannel('tollgate-session')
  let hasFailed = false
  let accountId: string | undefined
  let current = ''
  channel.addEventListener('message', ({ data }: MessageEvent<unknown>) => {
    if (hasFailed || data !== current) readSession()
  })
  return {
    onError: () => {
      hasFailed = true
    },
    onRead: () => {
      const session = getClient().getQueryData(sessionQuery.queryKey)
      if (!session) return
      const others = (query: { queryKey: readonly unknown[] }): boolean =>
        query.queryKey[0] !== sessionKey
      if (accountId !== undefined && accountId !== session.accountId)
        void getClient().resetQueries({ predicate: others })
      else if (hasFailed)
        void getClient().refetchQueries({
          type: 'active',
          predicate: (query) => others(query) && query.state.status === 'error',
        })
      hasFailed = false
      accountId = session.accountId
      current = `${session.accountId} ${session.authTime}`
      // oxlint-disable-next-line unicorn/require-post-message-target-origin -- a channel is of one origin
      channel.postMessage(current)
    },
  }
}
