import type * as pb from '../../proto/gen/ts-proto/tollgate/billing/v1/billing.ts'
import { operator, operatorWrite } from '../rpc/callers.ts'
import { type Handlers, rpc } from '../rpc/serve.ts'
import {
  type AppSettings,
  type BillingSettings,
  type SettingsChange,
  formatPercent,
  parseBillingMode,
  parseCap,
  parsePercent,
} from './settings.ts'

/** What operators settle for apps. */
export function createSettingsRpc({ settings }: { readonly settings: BillingSettings }) {
  const billingSettingsService: Handlers<pb.BillingSettingsServiceServer> = {
    readBillingSettings: rpc(operator(), async ({ clientId }: pb.ReadBillingSettingsRequest) => ({
      settings: toSettings(await settings.read(clientId)),
    })),
    replaceBillingSettings: rpc(
      operatorWrite(),
      async (request: pb.ReplaceBillingSettingsRequest, _caller, { correlationId }) => {
        const actor = { name: 'operator', correlationId }
        return {
          settings: toSettings(await settings.change(request.clientId, changeOf(request), actor)),
        }
      },
    ),
  }
  return { billingSettingsService }
}

const changeOf = ({
  billingMode,
  endUserCap,
  isPlatformOwned,
  platformCutPercent,
}: pb.ReplaceBillingSettingsRequest): SettingsChange => ({
  ...(billingMode === undefined ? {} : { billingMode: parseBillingMode(billingMode) }),
  ...(endUserCap === undefined ? {} : { endUserCap: parseCap(endUserCap) }),
  ...(isPlatformOwned === undefined ? {} : { isPlatformOwned }),
  ...(platformCutPercent === undefined ? {} : { cut: parsePercent(platformCutPercent) }),
})

const toSettings = (settings: AppSettings): pb.BillingSettings => ({
  clientId: settings.clientId,
  billingMode: settings.billingMode,
  endUserCap: settings.cap,
  isDefaultCap: settings.endUserCap === null,
  isPlatformOwned: settings.isPlatformOwned,
  platformCutPercent: formatPercent(settings.cut),
  plannedCuts: settings.plannedCuts.map(({ since, basisPoints }) => ({
    since: since.toISOString(),
    percent: formatPercent(basisPoints),
  })),
})
