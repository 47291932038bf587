import { type ReactNode, useState } from 'react'
import type { Schemas } from '../api/client.ts'
import type { UserRef } from '../api/users.ts'
import { Button } from '../ui/button.tsx'
import { Confirm } from '../ui/confirm.tsx'
import { useActivate, useDeactivate } from './changes.ts'

export const statuses = ['active', 'inactive'] as const

export const UserStatus = ({ status }: { status: Schemas['User']['status'] }): ReactNode => (
  <span className={status === 'active' ? 'badge good' : 'badge bad'}>{status}</span>
)

interface StatusChangeProps {
  readonly clientId: string
  readonly user: Schemas['User']
}

type Act = 'deactivate' | 'activate'

/** Deactivates a user, or activates it again. Asks before. */
export function StatusChange({ clientId, user }: StatusChangeProps): ReactNode {
  // The act stays the same while the dialog is open, although it changes the status.
  const [asked, setAsked] = useState<Act | null>(null)
  const { externalUserId, status } = user
  const act: Act = status === 'active' ? 'deactivate' : 'activate'
  return (
    <>
      <Button kind={status === 'active' ? 'danger' : 'plain'} onClick={() => setAsked(act)}>
        {actNames[act]}
      </Button>
      {asked && (
        <Question user={{ clientId, externalUserId }} act={asked} onClose={() => setAsked(null)} />
      )}
    </>
  )
}

interface QuestionProps {
  readonly user: UserRef
  readonly act: Act
  readonly onClose: () => void
}

function Question({ user, act, onClose }: QuestionProps): ReactNode {
  const changes = { deactivate: useDeactivate(user), activate: useActivate(user) }
  const change = changes[act]
  return (
    <Confirm
      title={`${actNames[act]} this user?`}
      effect={act === 'deactivate' ? deactivation : activation}
      action={actNames[act]}
      isBusy={change.isPending}
      error={change.error}
      onConfirm={() => change.mutate(undefined, { onSuccess: onClose })}
      onClose={onClose}
    />
  )
}

const actNames: Readonly<Record<Act, string>> = { deactivate: 'Deactivate', activate: 'Activate' }

const deactivation =
  'It ends every key, session and token of the user, and calls are refused at once. Balance, tickets and invoices stay. You can activate the user again, but not the keys.'
const activation =
  'The user can get new keys and tokens, and spend again. Keys that were revoked stay revoked.'
