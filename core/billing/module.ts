import { BillingSettingsServiceService } from '../../proto/gen/ts-proto/tollgate/billing/v1/billing.ts'
import type { Platform } from '../platform/platform.ts'
import { grpcService } from '../rpc/serve.ts'
import type { BillingConfig } from './config.ts'
import type { Cuts } from './cuts.ts'
import { createSettingsRpc } from './rpc.ts'
import { createSettings } from './settings.ts'

export interface BillingOthers {
  readonly config: BillingConfig
  /** Made before all modules: metering asks it, too. */
  readonly cuts: Cuts
}

/** What the platform settles for apps. */
export function createBillingModule({ pool, now }: Platform, { config, cuts }: BillingOthers) {
  const settings = createSettings({ pool, now, cuts, endUserCap: config.endUserCap })
  return {
    api: {},
    services: [
      grpcService(
        BillingSettingsServiceService,
        createSettingsRpc({ settings }).billingSettingsService,
      ),
    ],
  }
}
