import { auditChange, lockApp } from './change.ts'
import { DomainError } from '../../../proto/errors.ts'
import type { MemberCaller } from '../../rpc/callers.ts'
import { isUuid } from '../../shared/ids.ts'
import type { Shared } from '../../shared/shared.ts'
import { uuidV7 } from '../../lib/crypto.ts'
import { tx } from '../../lib/sql.ts'
import type { Context } from '../../rpc/serve.ts'
import * as store from './store.ts'

const domainsMax = 50

/** Origins from which an app's pages call the API. Each change has an entry in the audit log. */
export function createDomains({ pool, now }: Shared) {
  const listDomains = (caller: MemberCaller): Promise<store.DomainRow[]> =>
    store.listDomains(pool, caller.appId)

  /** Throws CONFLICT for an origin that the app already has. */
  async function addDomain(
    caller: MemberCaller,
    origin: string,
    context: Context,
  ): Promise<store.DomainRow> {
    return tx(pool, async (db) => {
      await lockApp(db, caller.appId)
      const at = now()
      const domain = await store.insertDomain(db, caller.appId, {
        id: uuidV7(at.getTime()),
        origin,
        at,
      })
      if (!domain) throw new DomainError('CONFLICT', `the app already has the domain ${origin}`)
      const { length } = await store.listDomains(db, caller.appId)
      if (length > domainsMax)
        throw new DomainError('CONFLICT', `an app may have ${domainsMax} domains`)
      await auditChange(db, { caller, context, action: 'domain_added', details: { origin }, at })
      return domain
    })
  }

  async function removeDomain(caller: MemberCaller, id: string, context: Context): Promise<void> {
    await tx(pool, async (db) => {
      const domain = isUuid(id) ? await store.deleteDomain(db, caller.appId, id) : null
      if (!domain) throw new DomainError('NOT_FOUND', 'the app has no such domain')
      const details = { origin: domain.origin }
      await auditChange(db, { caller, context, action: 'domain_removed', details, at: now() })
    })
  }

  const knowsOrigin = (origin: string, clientId: string | null): Promise<boolean> =>
    store.knowsOrigin(pool, origin, clientId)

  return { listDomains, addDomain, removeDomain, knowsOrigin }
}
