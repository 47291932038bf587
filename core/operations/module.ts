import { AuditServiceService } from '../../proto/gen/ts-proto/tollgate/shared/v1/audit.ts'
import { SealingServiceService } from '../../proto/gen/ts-proto/tollgate/shared/v1/sealing.ts'
import { SettingServiceService } from '../../proto/gen/ts-proto/tollgate/shared/v1/settings.ts'
import type { OwnSettings } from '../lib/settings/redacted.ts'
import { grpcService } from '../rpc/serve.ts'
import { createAuditRetention } from '../shared/audit-log/retention.ts'
import { type SealedTable, createRewrap } from '../shared/sealing/rewrap.ts'
import type { Shared } from '../shared/shared.ts'
import { createAuditRpc } from './audit-rpc.ts'
import { createSealingRpc } from './sealing-rpc.ts'
import { createSettingsRpc } from './settings-rpc.ts'

export interface OperationsOthers {
  /** Every table with values that a key-encryption key seals. */
  readonly sealedTables: readonly SealedTable[]
  /** The settings of this process. Default is none. */
  readonly settings?: OwnSettings | undefined
}

/** What operators read and do on the whole deployment, whatever domain a row belongs to. */
export function createOperationsModule(
  shared: Shared,
  { sealedTables: tables, settings }: OperationsOthers,
) {
  const rewrap = createRewrap({ ...shared, tables })
  const retention = createAuditRetention(shared, shared.config.audit)
  return {
    api: {},
    services: [
      grpcService(AuditServiceService, createAuditRpc(shared).auditService),
      grpcService(SealingServiceService, createSealingRpc(rewrap).sealingService),
      grpcService(SettingServiceService, createSettingsRpc(settings).settingService),
    ],
    upkeep: [retention.deleteOld],
  }
}
