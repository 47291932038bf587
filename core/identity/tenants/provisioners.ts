import { DomainError } from '../../../proto/errors.ts'
import { Scope } from '../../../proto/scopes.ts'
import type { BasicPair } from '../../lib/http.ts'
import { isClientId } from '../../shared/ids.ts'
import type { Shared } from '../../shared/shared.ts'
import type { M2mCaller, ProvisionerCaller } from '../../rpc/callers.ts'
import type { Clients } from '../apps/clients.ts'
import { servesEveryApp } from './store.ts'
import type { Tenants } from './tenants.ts'

type Deps = Shared & {
  readonly clients: Pick<Clients, 'authenticate' | 'findPublic'>
  readonly tenants: Pick<Tenants, 'authenticate'>
}

/**
 * Callers that may create users at the builder API: an app's tenant, and M2M clients
 * (docs/builder-api.md).
 */
export function createProvisioners({ pool, clients, tenants }: Deps) {
  /**
   * Returns the caller for the requested app. Throws CREDENTIAL_INVALID, NOT_FOUND or
   * SCOPE_MISSING, checked in this order. An M2M client serves its own app; the M2M client of a
   * platform app serves any app.
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

  /**
   * Returns the app if the client belongs to the platform. Runs both queries in any case, so that
   * timing reveals nothing.
   */
  async function anyApp({ appId }: M2mCaller, clientId = '') {
    const [client, isOwn] = await Promise.all([
      isClientId(clientId) ? clients.findPublic(clientId) : null,
      servesEveryApp(pool, appId),
    ])
    return isOwn && client ? { appId: client.appId, clientId: client.publicClientId } : null
  }

  /**
   * Whether an M2M client may act for the app at the builder API: its own app, or any app if its
   * own belongs to the platform.
   */
  const serves = async ({ appId, clientId }: M2mCaller, app: string): Promise<boolean> =>
    clientId === app || servesEveryApp(pool, appId)

  return { admit, serves }
}

export type Provisioners = ReturnType<typeof createProvisioners>

const noSuchApp = (): DomainError => new DomainError('NOT_FOUND', 'no such app for this credential')
