import { DomainError } from '../../../proto/errors.ts'
import { audit } from '../../platform/audit.ts'
import type { MemberCaller, Role } from '../../rpc/callers.ts'
import { isUuid } from '../../platform/ids.ts'
import { type Db, type Pool, tx } from '../../lib/sql.ts'
import type { Now } from '../../lib/time.ts'
import type { Context } from '../../rpc/serve.ts'
import { findByEmail } from '../accounts/store.ts'
import { lockApp } from '../apps/store.ts'
import { parseEmail } from '../input.ts'
import * as store from './store.ts'

const membersMax = 100

/** The people who may see and change an app. An app always has an owner, and only an owner may add or remove one. */
export function createMembers({ pool, now }: { pool: Pool; now: Now }) {
  const list = (caller: MemberCaller): Promise<store.MemberRow[]> =>
    store.listMembers(pool, caller.appId)

  /** Adds the account of that address, or changes its role. NOT_FOUND when no account has the address. */
  async function put(
    caller: MemberCaller,
    request: { email: string; role: Role },
    context: Context,
  ) {
    return tx(pool, async (db) => {
      await lock(db, caller)
      const account = await findByEmail(db, parseEmail(request.email))
      if (!account)
        throw new DomainError(
          'NOT_FOUND',
          'no account has this e-mail address; its owner must sign up first',
        )
      const before = await store.findMember(db, caller.appId, account.id)
      await allowChange(db, caller, { from: before?.role ?? null, to: request.role })
      await store.putMember(db, {
        app: caller.appId,
        account: account.id,
        role: request.role,
        at: now(),
      })
      await note(
        db,
        { caller, context, action: before ? 'member_role_changed' : 'member_added' },
        { accountId: account.id, role: request.role },
      )
      const member = await store.findMember(db, caller.appId, account.id)
      if (!member) throw new Error('a member that was just written cannot be found')
      return { member, created: before === null }
    })
  }

  async function remove(caller: MemberCaller, account: string, context: Context): Promise<void> {
    await tx(pool, async (db) => {
      await lock(db, caller)
      const before = isUuid(account) ? await store.findMember(db, caller.appId, account) : null
      if (!before) throw new DomainError('NOT_FOUND', 'the app has no such member')
      await allowChange(db, caller, { from: before.role, to: null })
      await store.deleteMember(db, caller.appId, account)
      await note(
        db,
        { caller, context, action: 'member_removed' },
        { accountId: account, role: before.role },
      )
    })
  }

  // Changes follow each other: of two owners that leave at the same time, neither may still count the other.
  async function lock(db: Db, caller: MemberCaller): Promise<void> {
    if (!(await lockApp(db, caller.appId)))
      throw new DomainError('NOT_FOUND', 'no such app for this credential')
  }

  async function allowChange(
    db: Db,
    caller: MemberCaller,
    { from, to }: { from: Role | null; to: Role | null },
  ): Promise<void> {
    if ((from === 'owner' || to === 'owner') && caller.role !== 'owner') {
      throw new DomainError('EDIT_FORBIDDEN', 'only an owner makes, changes or removes an owner')
    }
    const { members, owners } = await store.countMembers(db, caller.appId)
    if (from === 'owner' && to !== 'owner' && owners === 1) {
      throw new DomainError('CONFLICT', 'an app is never without an owner; make another one first')
    }
    if (from === null && members >= membersMax)
      throw new DomainError('CONFLICT', `an app may have ${membersMax} members`)
  }

  async function note(
    db: Db,
    { caller, context, action }: { caller: MemberCaller; context: Context; action: string },
    details: Readonly<Record<string, string>>,
  ): Promise<void> {
    await audit(db, {
      appId: caller.appId,
      actor: caller.accountId,
      action,
      status: 'success',
      correlationId: context.correlationId,
      details,
      at: now(),
    })
  }

  return { list, put, remove }
}

export type Members = ReturnType<typeof createMembers>
