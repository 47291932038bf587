import { DomainError } from '../../../proto/errors.ts'
import { Scope } from '../../../proto/scopes.ts'
import type { BasicPair } from '../../lib/http.ts'
import type { Pool } from '../../lib/sql.ts'
import { isClientId } from '../../platform/ids.ts'
import type { M2mCaller, ProvisionerCaller } from '../../rpc/callers.ts'
import type { Clients } from '../apps/clients.ts'
import { servesEveryApp } from './store.ts'
import type { Tenants } from './tenants.ts'

export interface ProvisionersDeps {
  readonly pool: Pool
  readonly clients: Pick<Clients, 'authenticate' | 'findPublic'>
  readonly tenants: Pick<Tenants, 'authenticate'>
}

/** Who may create users at the builder API: the tenant of an app, and M2M clients (docs/builder-api.md). */
export function createProvisioners({ pool, clients, tenants }: ProvisionersDeps) {
  /**
   * The caller for the app that the request names: CREDENTIAL_INVALID, then NOT_FOUND, then SCOPE_MISSING. An M2M client
   * serves its own app, and any app when its own was marked as the platform's.
   */
  async function admit(
    pairs: readonly BasicPair[],
    clientId: string | undefined,
  ): Promise<ProvisionerCaller> {
    const tenant = await tenants.authenticate(pairs)
    if (!tenant) return admitM2m(await clients.authenticate(pairs), clientId)
    if (clientId !== tenant.clientId || !isClientId(clientId)) throw noSuchApp()
    const { appId, secretId } = tenant
    return { kind: 'provisioner', appId, clientId, name: clientId, grants: [secretId] }
  }

  async function admitM2m(
    caller: M2mCaller,
    clientId: string | undefined,
  ): Promise<ProvisionerCaller> {
    const { m2mClientId: name, scopes, grants } = caller
    const app = clientId === caller.clientId ? caller : await anyApp(caller, clientId)
    if (!app) throw noSuchApp()
    if (!scopes.includes(Scope.usersWrite))
      throw new DomainError('SCOPE_MISSING', `the client lacks the scope ${Scope.usersWrite}`)
    return { kind: 'provisioner', appId: app.appId, clientId: app.clientId, name, grants }
  }

  /** The app when the client is the platform's. Asks for both, so that a stranger learns nothing by the time it takes. */
  async function anyApp({ appId }: M2mCaller, clientId = '') {
    const [client, isOwn] = await Promise.all([
      isClientId(clientId) ? clients.findPublic(clientId) : null,
      servesEveryApp(pool, appId),
    ])
    return isOwn && client ? { appId: client.appId, clientId: client.publicClientId } : null
  }

  /** Whether an M2M client may act for that app at the builder API: its own, or any when its own is the platform's. */
  const serves = async ({ appId, clientId }: M2mCaller, app: string): Promise<boolean> =>
    clientId === app || servesEveryApp(pool, appId)

  return { admit, serves }
}

export type Provisioners = ReturnType<typeof createProvisioners>

const noSuchApp = (): DomainError => new DomainError('NOT_FOUND', 'no such app for this credential')
