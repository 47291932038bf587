import {
  type QueryClient,
  type UseMutationResult,
  useMutation,
  useQueryClient,
} from '@tanstack/react-query'
import { api, unwrap } from '../api/client.ts'
import { appQuery, appsQuery, teamQuery } from '../api/queries.ts'

/** One's own rights may have changed, too. */
async function readAgain(queries: QueryClient, clientId: string): Promise<void> {
  const keys = [teamQuery(clientId), appQuery(clientId), appsQuery].map(({ queryKey }) => queryKey)
  await Promise.all(keys.map((queryKey) => queries.invalidateQueries({ queryKey })))
}

export const roles = ['viewer', 'admin', 'owner'] as const
export type Role = (typeof roles)[number]

export interface Invited {
  readonly email: string
  readonly role: Role
}

/** Invites an address, or changes a member's role. */
export function useUpsertMember(clientId: string): UseMutationResult<unknown, Error, Invited> {
  const queries = useQueryClient()
  return useMutation({
    mutationFn: (body: Invited) =>
      unwrap(api.PUT('/api/v1/apps/{clientId}/admins', { params: { path: { clientId } }, body })),
    onSuccess: () => readAgain(queries, clientId),
  })
}

export type Removed = { readonly email: string; readonly id: string } & {
  readonly kind: 'member' | 'invitation'
}

/** Removes a member, or withdraws an invitation. */
export function useDeleteMember(clientId: string): UseMutationResult<unknown, Error, Removed> {
  const queries = useQueryClient()
  return useMutation({
    mutationFn: ({ kind, id }: Removed) =>
      unwrap(
        api.DELETE('/api/v1/apps/{clientId}/admins', {
          params: {
            path: { clientId },
            query: kind === 'member' ? { accountId: id } : { invitationId: id },
          },
        }),
      ),
    onSuccess: () => readAgain(queries, clientId),
  })
}
