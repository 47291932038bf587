import { type QueryClient, queryOptions, useMutation, useQueryClient } from '@tanstack/react-query'
import { useChange } from './change.ts'
import { type Schemas, api, unwrap } from './client.ts'
import { appsQuery, sessionQuery } from './queries.ts'
import { type UserRef, allowanceQuery, userKey } from './users.ts'

/** Queries and changes of an app's set-up: from nothing to the first ticket. */

/** While a ticket is awaited. */
const waitMs = 3_000
/** Before every ticket. Without dates, the route lists those of the current month. */
const firstDay = '1970-01-01'

export type TestCall = Schemas['TestCall']
export type CreatedApp = Schemas['CreatedApp']

const setupKey = (clientId: string, part: string) => ['setup', clientId, part] as const

/**
 * The app's newest ticket, or null. It is read again until there is one. The range has no end,
 * because the clock of a test app may be ahead.
 */
export const newestTicketQuery = (clientId: string) =>
  queryOptions({
    queryKey: setupKey(clientId, 'ticket'),
    refetchInterval: ({ state: { data } }) => (data === null ? waitMs : false),
    queryFn: async () => {
      const query = { startDate: firstDay, limit: '1' }
      const { items } = await unwrap(
        api.GET('/api/v1/internal/apps/{clientId}/usage/requests', {
          params: { path: { clientId }, query },
        }),
      )
      return items.find((item) => 'eventId' in item) ?? null
    },
  })

/** A user of the app: the named one, otherwise the first; null if there is none. */
export const setupUserQuery = (clientId: string, externalUserId: string | undefined) =>
  queryOptions({
    queryKey: [...setupKey(clientId, 'user'), externalUserId],
    queryFn: async () => {
      const named =
        externalUserId === undefined ? { status: 'active' as const } : { externalUserId }
      const { users } = await unwrap(
        api.GET('/api/v1/internal/apps/{clientId}/users', {
          params: { path: { clientId }, query: { limit: '1', ...named } },
        }),
      )
      return users[0] ?? null
    },
  })

/** A key of the user that works; null if there is none among the newest. */
export const workingKeyQuery = ({ clientId, externalUserId }: UserRef) =>
  queryOptions({
    queryKey: [...setupKey(clientId, 'key'), externalUserId],
    queryFn: async () => {
      const { keys } = await unwrap(
        api.GET('/api/v1/internal/apps/{clientId}/users/{externalUserId}/keys', {
          params: { path: { clientId, externalUserId }, query: { limit: '50' } },
        }),
      )
      return keys.find(({ revokedAt }) => revokedAt === null) ?? null
    },
  })

/** The newest permission of the signer webhook that was recorded, or null. */
export const permissionQuery = (clientId: string) =>
  queryOptions({
    queryKey: setupKey(clientId, 'permission'),
    queryFn: async () => {
      const { decisions } = await readDecisions(clientId, { code: 'ok', limit: '1' })
      return decisions[0] ?? null
    },
  })

/** The newest answers of the signer webhook, read again while a ticket is awaited. */
export const newestDecisionsQuery = (clientId: string) =>
  queryOptions({
    queryKey: setupKey(clientId, 'decisions'),
    refetchInterval: waitMs,
    queryFn: async () => (await readDecisions(clientId, { limit: '5' })).decisions,
  })

const readDecisions = (clientId: string, query: { code?: string; limit: string }) =>
  unwrap(api.GET('/api/v1/apps/{clientId}/decisions', { params: { path: { clientId }, query } }))

export interface NewApp {
  readonly body: { readonly name: string; readonly isTest: boolean }
  readonly idempotencyKey: string
}

/** Creates an app. The answer alone has the secret of its backend, and is forgotten with the view. */
export const useCreateApp = () =>
  useChange(
    [appsQuery.queryKey, sessionQuery.queryKey],
    ({ body, idempotencyKey }: NewApp) =>
      unwrap(
        api.POST('/api/v1/apps', {
          params: { header: { 'idempotency-key': idempotencyKey } },
          body,
        }),
      ),
    { showsAtOnce: true },
  )

const usersUrl = '/api/v1/internal/apps/{clientId}/users'

export const useCreateFirstUser = (clientId: string) =>
  useChange([setupKey(clientId, 'user'), ['users', clientId]], (externalUserId: string) =>
    unwrap(api.POST(usersUrl, { params: { path: { clientId } }, body: { externalUserId } })),
  )

export const useCreateFirstKey = (user: UserRef) =>
  useChange(
    [setupKey(user.clientId, 'key'), userKey(user)],
    (idempotencyKey: string) =>
      unwrap(
        api.POST(`${usersUrl}/{externalUserId}/keys`, {
          params: { path: { ...user }, header: { 'idempotency-key': idempotencyKey } },
          body: { label: 'first key' },
        }),
      ),
    { showsAtOnce: true },
  )

/** Asks the signer webhook about a user. */
export function useTestCall({ clientId, externalUserId }: UserRef) {
  const queries = useQueryClient()
  return useMutation({
    mutationFn: () =>
      unwrap(
        api.POST('/api/v1/internal/apps/{clientId}/signer/test-call', {
          params: { path: { clientId } },
          body: { externalUserId },
        }),
      ),
    onSettled: () => readProgress(queries, { clientId, externalUserId }),
  })
}

const readProgress = async (queries: QueryClient, user: UserRef): Promise<void> => {
  await queries.invalidateQueries({ queryKey: ['setup', user.clientId] })
  await queries.invalidateQueries({ queryKey: allowanceQuery(user).queryKey })
}
