import { AuditServiceService } from '../../../proto/gen/ts-proto/tollgate/platform/v1/audit.ts'
import { grpcService } from '../../rpc/serve.ts'
import type { Platform } from '../platform.ts'
import { createAuditRetention } from './retention.ts'
import { createAuditRpc } from './rpc.ts'

/** The audit log: its export for operators, and its retention. */
export function createAuditModule(platform: Platform) {
  const retention = createAuditRetention(platform, platform.config.audit)
  return {
    api: {},
    services: [grpcService(AuditServiceService, createAuditRpc(platform).auditService)],
    upkeep: [retention.deleteOld],
  }
}
