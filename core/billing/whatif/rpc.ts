import type * as pb from '../../../proto/gen/ts-proto/tollgate/billing/v1/whatif.ts'
import { formatDecimal18 } from '../../lib/money.ts'
import { appOperator, hiddenMember, orOperator } from '../../rpc/guards.ts'
import { type Handlers, rpc } from '../../rpc/serve.ts'
import type { Figures, WhatIfRow } from './sums.ts'
import type { WhatIf, WhatIfAnswer } from './whatif.ts'

const ownerSeconds = 60
const operatorSeconds = 3_600
// Same as the gateway's limit for bodies.
const messageMaxBytes = 1_100_000

export function createWhatIfRpc({ whatIf }: { readonly whatIf: WhatIf }) {
  const whatIfService: Handlers<pb.WhatIfServiceServer> = {
    simulatePlans: rpc(
      orOperator(hiddenMember('edit'), appOperator()),
      async ({ requestJson }: pb.SimulatePlansRequest, { kind, appId }, { signal }) => {
        const limitSeconds = kind === 'operator' ? operatorSeconds : ownerSeconds
        const answer = await whatIf.simulatePlans(appId, requestJson, { limitSeconds, signal })
        return { whatIf: toWhatIf(answer) }
      },
      { messageMaxBytes },
    ),
  }
  return { whatIfService }
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
