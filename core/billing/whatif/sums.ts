import type { TrialSums, UserOutcome } from './user-replay.ts'

/** Sums the results of users in bounded memory, by the plan they would be on and in total. */

export interface Figures {
  /** Retail of the tickets. */
  revenue: bigint
  included: bigint
  unused: bigint
  overage: bigint
  usersRunOut: number
}

/** Amounts are in atto-dollars. */
export interface WhatIfRow {
  readonly plan: string
  readonly isDraft: boolean
  users: number
  tickets: number
  unpriced: number
  cost: bigint
  platformFee: bigint
  readonly today: Figures
  readonly whatIf: Figures
  more: number
  less: number
  same: number
}

/** A user who would have run out of money. */
export interface RunOut {
  readonly externalUserId: string
  readonly plan: string
  readonly at: Date
  /** When the user ran out as booked. */
  readonly todayAt: Date | null
}

const runOutsMax = 1_000

const newFigures = (): Figures => ({
  revenue: 0n,
  included: 0n,
  unused: 0n,
  overage: 0n,
  usersRunOut: 0,
})

const newRow = (plan: string, isDraft: boolean): WhatIfRow => ({
  plan,
  isDraft,
  users: 0,
  tickets: 0,
  unpriced: 0,
  cost: 0n,
  platformFee: 0n,
  today: newFigures(),
  whatIf: newFigures(),
  more: 0,
  less: 0,
  same: 0,
})

export function createSums(drafts: readonly { readonly name: string }[]) {
  const total = newRow('', false)
  const ofDrafts = new Map<object, WhatIfRow>(
    drafts.map((draft) => [draft, newRow(draft.name, true)]),
  )
  const ofPlans = new Map<string, WhatIfRow>()
  let runOuts: RunOut[] = []

  function rowOf({ draft, user }: UserOutcome): WhatIfRow {
    const known = draft ? ofDrafts.get(draft) : ofPlans.get(user.planId)
    if (known) return known
    const row = newRow(user.planName, false)
    ofPlans.set(user.planId, row)
    return row
  }

  function add(outcome: UserOutcome): void {
    const row = rowOf(outcome)
    addUser(row, outcome)
    addUser(total, outcome)
    const { ranOutAt: at } = outcome.whatIf
    if (at === null) return
    const { externalUserId } = outcome.user
    runOuts.push({ externalUserId, plan: row.plan, at, todayAt: outcome.today.ranOutAt })
    if (runOuts.length > 2 * runOutsMax) runOuts = earliest(runOuts)
  }

  const read = () => ({
    total,
    plans: [...ofDrafts.values(), ...ofPlans.values()],
    runOuts: earliest(runOuts),
    moreRunOuts: Math.max(0, total.whatIf.usersRunOut - runOutsMax),
  })

  return { add, read }
}

export type WhatIfSums = ReturnType<ReturnType<typeof createSums>['read']>

const earliest = (runOuts: readonly RunOut[]): RunOut[] =>
  runOuts
    .toSorted(
      (a, b) => a.at.getTime() - b.at.getTime() || (a.externalUserId < b.externalUserId ? -1 : 1),
    )
    .slice(0, runOutsMax)

function addUser(row: WhatIfRow, outcome: UserOutcome): void {
  const { tickets, unpriced, cost, platformFee, today, whatIf } = outcome
  row.users += 1
  row.tickets += tickets
  row.unpriced += unpriced
  row.cost += cost
  row.platformFee += platformFee
  addFigures(row.today, today)
  addFigures(row.whatIf, whatIf)
  if (whatIf.revenue > today.revenue) row.more += 1
  else if (whatIf.revenue < today.revenue) row.less += 1
  else row.same += 1
}

function addFigures(figures: Figures, sums: TrialSums & { readonly revenue: bigint }): void {
  figures.revenue += sums.revenue
  figures.included += sums.included
  figures.unused += sums.unused
  figures.overage += sums.overage
  if (sums.ranOutAt !== null) figures.usersRunOut += 1
}
