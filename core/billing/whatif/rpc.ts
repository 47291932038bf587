import type * as pb from '../../../proto/gen/ts-proto/tollgate/billing/v1/whatif.ts'
import { formatDecimal18 } from '../../lib/money.ts'
import type { AppId } from '../../platform/ids.ts'
import { hiddenMember, operator } from '../../rpc/callers.ts'
import { type Handlers, rpc } from '../../rpc/serve.ts'
import type { Figures, WhatIfRow } from './sums.ts'
import type { WhatIf, WhatIfAnswer } from './whatif.ts'

const ownerSeconds = 60
const operatorSeconds = 3_600
// Same as the gateway's limit for bodies.
const messageMaxBytes = 1_100_000

export function createWhatIfRpc({
  whatIf,
  findApp,
}: {
  readonly whatIf: WhatIf
  /** Throws NOT_FOUND for an unknown client id. */
  readonly findApp: (clientId: string) => Promise<AppId>
}) {
  const whatIfService: Handlers<pb.WhatIfServiceServer> = {
    tryPlans: rpc(
      hiddenMember('edit'),
      async ({ requestJson }: pb.TryPlansRequest, { appId }, { signal }) => {
        const limits = { limitSeconds: ownerSeconds, signal }
        return { whatIf: toWhatIf(await whatIf.tryPlans(appId, requestJson, limits)) }
      },
      { messageMaxBytes },
    ),
  }
  const operatorWhatIfService: Handlers<pb.OperatorWhatIfServiceServer> = {
    tryAppPlans: rpc(
      operator(),
      async ({ clientId, requestJson }: pb.TryAppPlansRequest, _caller, { signal }) => {
        const limits = { limitSeconds: operatorSeconds, signal }
        const app = await findApp(clientId)
        return { whatIf: toWhatIf(await whatIf.tryPlans(app, requestJson, limits)) }
      },
      { messageMaxBytes },
    ),
  }
  return { whatIfService, operatorWhatIfService }
}

const toWhatIf = ({ from, to, total, plans, runOuts, moreRunOuts }: WhatIfAnswer): pb.WhatIf => ({
  from: from.toISOString(),
  to: to.toISOString(),
  total: toRow(total),
  plans: plans.map(toRow),
  runOuts: runOuts.map(({ at, todayAt, ...runOut }) => ({
    ...runOut,
    at: at.toISOString(),
    todayAt: todayAt?.toISOString(),
  })),
  moreRunOuts,
})

const toRow = (row: WhatIfRow): pb.WhatIfRow => ({
  plan: row.plan,
  isDraft: row.isDraft,
  users: row.users,
  tickets: String(row.tickets),
  unpricedTickets: String(row.unpriced),
  networkCostUsdExact: formatDecimal18(row.cost),
  platformCutUsdExact: formatDecimal18(row.platformFee),
  today: toFigures(row.today, row),
  whatIf: toFigures(row.whatIf, row),
  usersPayingMore: row.more,
  usersPayingLess: row.less,
  usersPayingSame: row.same,
})

const toFigures = (
  figures: Figures,
  { cost, platformFee }: Pick<WhatIfRow, 'cost' | 'platformFee'>,
): pb.WhatIfFigures => ({
  revenueUsdExact: formatDecimal18(figures.revenue),
  marginUsdExact: formatDecimal18(figures.revenue - cost - platformFee),
  includedUsdExact: formatDecimal18(figures.included),
  includedUnusedUsdExact: formatDecimal18(figures.unused),
  overageUsdExact: formatDecimal18(figures.overage),
  usersRunOut: figures.usersRunOut,
})
