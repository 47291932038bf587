import { type ReactNode, useState } from 'react'
import type { Schemas } from '../api/client.ts'
import { Confirm } from '../ui/confirm.tsx'
import { type Role, roles, useUpsertMember } from './changes.ts'

interface RoleSelectProps {
  readonly clientId: string
  readonly member: Schemas['Member']
  readonly canOwn: boolean
}

const effects: Readonly<Record<Role, string>> = {
  viewer: 'can read everything here, and change nothing.',
  admin: 'can read and change everything here, except owners.',
  owner: 'must accept an invitation first, and then can do everything, such as delete the app.',
}

/** A member's role. A change is asked for, because keys change the choice without opening it. */
export function RoleSelect({ clientId, member, canOwn }: RoleSelectProps): ReactNode {
  const [wanted, setWanted] = useState<Role | null>(null)
  const change = useUpsertMember(clientId)
  const { email, role } = member
  const close = (): void => {
    setWanted(null)
    change.reset()
  }
  return (
    <>
      <select
        aria-label={`Role of ${email}`}
        value={role}
        onChange={(event) => setWanted(roles.find((one) => one === event.target.value) ?? null)}
      >
        {choices(canOwn).map((one) => (
          <option key={one}>{one}</option>
        ))}
      </select>
      {wanted !== null && (
        <Confirm
          title={`Change the role to ${wanted}?`}
          effect={`${email} ${effects[wanted]}`}
          action="Change the role"
          isBusy={change.isPending}
          error={change.error}
          onConfirm={() => change.mutate({ email, role: wanted }, { onSuccess: close })}
          onClose={close}
        />
      )}
    </>
  )
}

export const choices = (canOwn: boolean): readonly Role[] =>
  canOwn ? roles : roles.filter((role) => role !== 'owner')
