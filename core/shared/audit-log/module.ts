import { AuditServiceService } from '../../../proto/gen/ts-proto/tollgate/shared/v1/audit.ts'
import { grpcService } from '../../rpc/serve.ts'
import type { Shared } from '../shared.ts'
import { createAuditRetention } from './retention.ts'
import { createAuditRpc } from './rpc.ts'

/** The audit log: its export for operators, and its retention. */
export function createAuditModule(shared: Shared) {
  const retention = createAuditRetention(shared, shared.config.audit)
  return {
    api: {},
    services: [grpcService(AuditServiceService, createAuditRpc(shared).auditService)],
    upkeep: [retention.deleteOld],
  }
}
