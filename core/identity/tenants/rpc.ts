import type * as pb from '../../../proto/gen/ts-proto/tollgate/identity/v1/tenants.ts'
import { parseCursor, parseLimit } from '../../shared/cursor.ts'
import { operatorActor } from '../../rpc/callers.ts'
import { operator, operatorWrite } from '../../rpc/guards.ts'
import { type Handlers, rpc } from '../../rpc/serve.ts'
import type { TenantRow, Tenants } from './tenants.ts'

export function createTenantsRpc({ tenants }: { tenants: Tenants }) {
  const tenantService: Handlers<pb.TenantServiceServer> = {
    createTenant: rpc(
      operatorWrite(),
      async ({ clientId }: pb.CreateTenantRequest, _caller, context) => {
        const { tenant, secret } = await tenants.create(clientId, operatorActor(context))
        return { tenant: toTenant(tenant), secret }
      },
    ),
    listTenants: rpc(operator(), async ({ cursor, limit }: pb.ListTenantsRequest) => {
      const filter = { after: parseCursor(cursor), limit: parseLimit(limit) }
      const { items, nextCursor } = await tenants.list(filter)
      return { tenants: items.map(toTenant), nextCursor }
    }),
    rotateTenantSecret: rpc(
      operatorWrite(),
      async ({ clientId, ...rotation }: pb.RotateTenantSecretRequest, _caller, context) => {
        const answer = await tenants.rotate(clientId, rotation, operatorActor(context))
        return { ...answer, oldSecretsExpireAt: answer.oldSecretsExpireAt.toISOString() }
      },
    ),
    disableTenant: rpc(
      operatorWrite(),
      async ({ clientId }: pb.DisableTenantRequest, _caller, context) => ({
        tenant: toTenant(await tenants.setStatus(clientId, 'disabled', operatorActor(context))),
      }),
    ),
    enableTenant: rpc(
      operatorWrite(),
      async ({ clientId }: pb.EnableTenantRequest, _caller, context) => ({
        tenant: toTenant(await tenants.setStatus(clientId, 'active', operatorActor(context))),
      }),
    ),
  }
  return { tenantService }
}

const toTenant = ({ client_id, app_name, status, created_at, secrets }: TenantRow): pb.Tenant => ({
  clientId: client_id,
  appName: app_name,
  status,
  createdAt: created_at.toISOString(),
  secrets,
})
