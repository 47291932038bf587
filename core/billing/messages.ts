import type * as pb from '../../proto/gen/ts-proto/tollgate/billing/v1/billing.ts'
import { type Admission, details } from './gate.ts'
import { type AppSettings, formatPercent } from './settings.ts'

export const toAdmission = ({ reason, isEnforced }: Admission): pb.Admission => ({
  code: reason?.toLowerCase(),
  detail: reason === null ? '' : details[reason],
  isEnforced,
})

export const toSettings = (settings: AppSettings): pb.BillingSettings => ({
  clientId: settings.clientId,
  billingMode: settings.billingMode,
  endUserCap: settings.cap,
  isDefaultCap: settings.endUserCap === null,
  isPlatformOwned: settings.isPlatformOwned,
  servesEveryApp: settings.servesEveryApp,
  platformCutPercent: formatPercent(settings.cut),
  plannedCuts: settings.plannedCuts.map(({ since, basisPoints }) => ({
    since: since.toISOString(),
    percent: formatPercent(basisPoints),
  })),
})
