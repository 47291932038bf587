import {
  type QueryClient,
  type UseMutationResult,
  useMutation,
  useQueryClient,
} from '@tanstack/react-query'
import { type Schemas, api, unwrap } from '../api/client.ts'
import { type LimitedRef, type UserRef, userKey } from '../api/users.ts'

type Change<Input, Output = unknown> = UseMutationResult<Output, Error, Input>

const usersUrl = '/api/v1/internal/apps/{clientId}/users'
const userUrl = `${usersUrl}/{externalUserId}` as const
const planUrl = '/api/v1/apps/{clientId}/users/{externalUserId}/subscription'

/** Reads again what is shown about a user. */
const readAgain = (queries: QueryClient, user: UserRef): Promise<void> =>
  queries.invalidateQueries({ queryKey: userKey(user) })

/** Returns a mutation after which everything about the user is read again. */
function useUserChange<Input, Output>(
  user: UserRef,
  mutationFn: (input: Input) => Promise<Output>,
): Change<Input, Output> {
  const queries = useQueryClient()
  return useMutation({
    mutationFn,
    // A lost answer may have changed something, too.
    onSettled: () => readAgain(queries, user),
  })
}

export interface NewUser {
  readonly externalUserId: string
  readonly email?: string
}

/** Creates a user. It returns an existing user with the same id. */
export function useCreateUser(clientId: string): Change<NewUser, Schemas['User']> {
  const queries = useQueryClient()
  return useMutation({
    mutationFn: (body: NewUser) =>
      unwrap(api.POST(usersUrl, { params: { path: { clientId } }, body })),
    onSuccess: async ({ externalUserId }) => {
      await queries.invalidateQueries({ queryKey: ['users', clientId] })
      await readAgain(queries, { clientId, externalUserId })
    },
  })
}

/** Ends the user's keys, sessions and tokens. */
export function useDeactivate(user: UserRef): Change<void, Schemas['Deactivated']> {
  const { clientId, externalUserId } = user
  const queries = useQueryClient()
  return useUserChange(user, async () => {
    const params = { path: { clientId }, query: { externalUserId } }
    const answer = await unwrap(api.DELETE(usersUrl, { params }))
    await queries.invalidateQueries({ queryKey: ['users', clientId] })
    return answer
  })
}

export function useActivate(user: UserRef): Change<void> {
  const { clientId, externalUserId } = user
  const queries = useQueryClient()
  return useUserChange(user, async () => {
    const body = { externalUserId, status: 'active' }
    const answer = await unwrap(api.PUT(usersUrl, { params: { path: { clientId } }, body }))
    await queries.invalidateQueries({ queryKey: ['users', clientId] })
    return answer
  })
}

export interface Gift {
  readonly amountUsdMicros: string
  readonly source: 'manual' | 'promo'
  readonly featureKey?: string
  readonly idempotencyKey: string
}

export const useGiveCredit = (user: UserRef): Change<Gift, Schemas['GrantedAllowance']> =>
  useUserChange(user, ({ idempotencyKey, ...body }) =>
    unwrap(
      api.POST(`${userUrl}/allowances`, {
        params: { path: { ...user }, header: { 'idempotency-key': idempotencyKey } },
        body,
      }),
    ),
  )

export interface NewKey {
  readonly label: string
  readonly idempotencyKey: string
}

/** Creates a key. The answer alone has its secret, and is forgotten with the view. */
export function useCreateKey(user: UserRef): Change<NewKey, Schemas['CreatedKey']> {
  const queries = useQueryClient()
  return useMutation({
    gcTime: 0,
    mutationFn: ({ label, idempotencyKey }: NewKey) =>
      unwrap(
        api.POST(`${userUrl}/keys`, {
          params: { path: { ...user }, header: { 'idempotency-key': idempotencyKey } },
          body: label === '' ? {} : { label },
        }),
      ),
    onSettled: () => readAgain(queries, user),
  })
}

export const useRevokeKey = (user: UserRef): Change<string, Schemas['RevokedKey']> =>
  useUserChange(user, (keyId) =>
    unwrap(api.DELETE(`${userUrl}/keys`, { params: { path: { ...user }, query: { keyId } } })),
  )

/** Ends a signer session. */
export const useEndSignerSession = (user: UserRef): Change<string> =>
  useUserChange(user, (sessionId) =>
    unwrap(
      api.DELETE(`${userUrl}/signer-sessions`, {
        params: { path: { ...user }, query: { sessionId } },
      }),
    ),
  )

type MaxPrice = Schemas['Limits']['maxPrices'][number]

export interface NewLimits {
  readonly usdMicrosPerDay?: string
  readonly usdMicrosPerSession?: string
  readonly callsPerMinute?: number
  readonly concurrentSessions?: number
  readonly maxPrices: { type: MaxPrice['type']; app?: string; maxWei: string }[]
}

export const useSetLimits = ({ keyId, ...user }: LimitedRef): Change<NewLimits> =>
  useUserChange(user, (body) =>
    unwrap(
      keyId === undefined
        ? api.PUT(`${userUrl}/limits`, { params: { path: { ...user } }, body })
        : api.PUT(`${userUrl}/keys/{keyId}/limits`, { params: { path: { ...user, keyId } }, body }),
    ),
  )

export const useClearLimits = ({ keyId, ...user }: LimitedRef): Change<void> =>
  useUserChange(user, () =>
    unwrap(
      keyId === undefined
        ? api.DELETE(`${userUrl}/limits`, { params: { path: { ...user } } })
        : api.DELETE(`${userUrl}/keys/{keyId}/limits`, { params: { path: { ...user, keyId } } }),
    ),
  )

export type Timing = Schemas['SubscriptionChange']['timing']

export interface PlanChange {
  readonly planId: string
  readonly timing?: Timing
  readonly idempotencyKey: string
}

export const useChangePlan = (user: UserRef): Change<PlanChange, Schemas['SubscriptionChange']> =>
  useUserChange(user, ({ idempotencyKey, ...body }) =>
    unwrap(
      api.POST(`${planUrl}/change`, {
        params: { path: { ...user }, header: { 'idempotency-key': idempotencyKey } },
        body,
      }),
    ),
  )

export const useCancelPlan = (user: UserRef): Change<Timing> =>
  useUserChange(user, (timing) =>
    unwrap(api.DELETE(planUrl, { params: { path: { ...user } }, body: { confirm: true, timing } })),
  )

/** Cancels a scheduled change or end of the plan. */
export const useResumePlan = (user: UserRef): Change<void> =>
  useUserChange(user, () =>
    unwrap(
      api.DELETE(`${planUrl}/pending-change`, {
        params: { path: { ...user } },
        body: { confirm: true },
      }),
    ),
  )
