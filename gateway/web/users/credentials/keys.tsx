import { useInfiniteQuery } from '@tanstack/react-query'
import { type ReactNode, useState } from 'react'
import type { Schemas } from '../../api/client.ts'
import { type UserRef, keysQuery } from '../../api/users.ts'
import { Answer } from '../../ui/answer.tsx'
import { Confirm } from '../../ui/confirm.tsx'
import { KeyTable } from '../../ui/keys/key-table.tsx'
import { More } from '../../ui/more.tsx'
import { Name } from '../../ui/name.tsx'
import { Empty } from '../../ui/states.tsx'
import { useRevokeKey } from '../changes.ts'
import { CreateKey } from './create-key.tsx'

interface KeysProps {
  readonly user: UserRef
  readonly canEdit: boolean
}

/** The keys of a user. */
export function Keys({ user, canEdit }: KeysProps): ReactNode {
  const keys = useInfiniteQuery(keysQuery(user))
  const [revoked, setRevoked] = useState<Schemas['Key'] | null>(null)
  return (
    <>
      {canEdit && <CreateKey user={user} />}
      <section className="card" aria-labelledby="keys">
        <h2 id="keys">Keys</h2>
        <Answer query={keys}>
          {({ pages }) => {
            const all = pages.flatMap((page) => page.keys)
            return all.length > 0 ? (
              <KeyTable
                label="Table of keys"
                keys={all}
                {...(canEdit && { onRevoke: setRevoked })}
              />
            ) : (
              <Empty>The user has no key. A program of the user needs one to be allowed.</Empty>
            )
          }}
        </Answer>
        <More query={keys} label="Show more" />
      </section>
      {revoked && <Revocation user={user} revoked={revoked} onClose={() => setRevoked(null)} />}
    </>
  )
}

interface RevocationProps {
  readonly user: UserRef
  readonly revoked: Schemas['Key']
  readonly onClose: () => void
}

function Revocation({ user, revoked, onClose }: RevocationProps): ReactNode {
  const revoke = useRevokeKey(user)
  return (
    <Confirm
      title="Revoke this key?"
      effect={
        <>
          Every call with <Name>{revoked.label ?? revoked.prefix}</Name> is refused at once, and so
          is every token that was issued for it. A revoked key never works again; create another one
          instead.
        </>
      }
      action="Revoke"
      typed={revoked.prefix}
      isBusy={revoke.isPending}
      error={revoke.error}
      onConfirm={() => revoke.mutate(revoked.keyId, { onSuccess: onClose })}
      onClose={onClose}
    />
  )
}
