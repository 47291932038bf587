import type { ReactNode } from 'react'
import { Confirm } from '../ui/confirm.tsx'
import { type Removed, useDeleteMember } from './changes.ts'

export type { Removed }

interface RemovalProps {
  readonly clientId: string
  readonly removed: Removed
  readonly onClose: () => void
}

/** Asks before a member or an invitation is removed. */
export function Removal({ clientId, removed, onClose }: RemovalProps): ReactNode {
  const remove = useDeleteMember(clientId)
  const isMember = removed.kind === 'member'
  return (
    <Confirm
      title={isMember ? 'Remove this member?' : 'Withdraw this invitation?'}
      effect={
        isMember
          ? `${removed.email} loses all rights in this app at once. You can invite the address again.`
          : `${removed.email} can no longer accept it. You can invite the address again.`
      }
      action={isMember ? 'Remove' : 'Withdraw'}
      isBusy={remove.isPending}
      error={remove.error}
      onConfirm={() => remove.mutate(removed, { onSuccess: onClose })}
      onClose={onClose}
    />
  )
}
