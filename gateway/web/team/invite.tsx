import { type ReactNode, useState } from 'react'
import type { Schemas } from '../api/client.ts'
import { Button } from '../ui/button.tsx'
import { Failure } from '../ui/states.tsx'
import { type Role, useUpsertMember } from './changes.ts'
import { choices } from './role-select.tsx'

interface InviteProps {
  readonly clientId: string
  readonly canOwn: boolean
  /** Their roles change in the list of members, not here. */
  readonly members: readonly Schemas['Member'][]
}

/** Invites a person by address. */
export function Invite({ clientId, canOwn, members }: InviteProps): ReactNode {
  const [email, setEmail] = useState('')
  const [role, setRole] = useState<Role>('viewer')
  const invite = useUpsertMember(clientId)
  const address = email.trim().toLowerCase()
  const isMember = members.some((member) => member.email === address)
  return (
    <section className="card" aria-labelledby="invite">
      <h2 id="invite">Invite somebody</h2>
      <form
        className="row"
        onSubmit={(event) => {
          event.preventDefault()
          if (isMember) return
          invite.mutate({ email: email.trim(), role }, { onSuccess: () => setEmail('') })
        }}
      >
        <label>
          E-mail address
          <input
            type="email"
            required
            maxLength={320}
            value={email}
            onChange={(event) => setEmail(event.target.value)}
          />
        </label>
        <label>
          Role
          <select
            value={role}
            onChange={(event) =>
              setRole(choices(canOwn).find((one) => one === event.target.value) ?? 'viewer')
            }
          >
            {choices(canOwn).map((one) => (
              <option key={one}>{one}</option>
            ))}
          </select>
        </label>
        <Button type="submit" kind="main" disabled={invite.isPending || isMember}>
          {invite.isPending ? 'Inviting …' : 'Invite'}
        </Button>
      </form>
      <p className="soft">A viewer reads, an admin also changes, an owner also deletes the app.</p>
      {isMember && <p role="status">{address} is a member already. Change the role in the list.</p>}
      {invite.error && <Failure error={invite.error} />}
      {invite.isSuccess && <p role="status">Invited. The list below shows the invitation.</p>}
    </section>
  )
}
