import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query'
import type { ReactNode } from 'react'
import { type Schemas, api, unwrap } from '../api/client.ts'
import { appsQuery, invitationsQuery } from '../api/queries.ts'
import { Button } from '../ui/button.tsx'
import { Instant } from '../ui/instant.tsx'
import { Failure } from '../ui/states.tsx'

/** Invitations that wait for the person's answer. Nothing shows without one. */
export function Invitations(): ReactNode {
  const invitations = useQuery(invitationsQuery)
  const queries = useQueryClient()
  const answer = useMutation({
    mutationFn: ({ id, accepts }: { id: string; accepts: boolean }): Promise<unknown> => {
      const params = { params: { path: { invitationId: id } } }
      return accepts
        ? unwrap(api.POST('/api/v1/invitations/{invitationId}/accept', params))
        : unwrap(api.POST('/api/v1/invitations/{invitationId}/decline', params))
    },
    onSettled: () =>
      Promise.all(
        [invitationsQuery, appsQuery].map(({ queryKey }) =>
          queries.invalidateQueries({ queryKey }),
        ),
      ),
  })
  if (invitations.error)
    return <Failure error={invitations.error} retry={() => void invitations.refetch()} />
  if (!invitations.data || invitations.data.length === 0) return null
  return (
    <section className="card" aria-labelledby="invited">
      <h2 id="invited">Invitations</h2>
      {invitations.data.map((invitation) => (
        <Invited
          key={invitation.id}
          invitation={invitation}
          isBusy={answer.isPending}
          onAnswer={(accepts) => answer.mutate({ id: invitation.id, accepts })}
        />
      ))}
      {answer.error && <Failure error={answer.error} />}
    </section>
  )
}

interface InvitedProps {
  readonly invitation: Schemas['Invitation']
  readonly isBusy: boolean
  readonly onAnswer: (accepts: boolean) => void
}

const Invited = ({ invitation, isBusy, onAnswer }: InvitedProps): ReactNode => {
  const { appName, role, invitedBy, expiresAt } = invitation
  return (
    <div className="row">
      <p>
        {invitedBy} invites you to <strong>{appName}</strong> as {role}, until{' '}
        <Instant at={expiresAt} />.
      </p>
      <Button kind="main" isSmall disabled={isBusy} onClick={() => onAnswer(true)}>
        Accept
      </Button>
      <Button isSmall disabled={isBusy} onClick={() => onAnswer(false)}>
        Decline
      </Button>
    </div>
  )
}
