import { type UsdAttos, usdAttos } from '../../lib/money.ts'
import type { Db } from '../../lib/sql.ts'
import type { UserId } from '../../shared/ids.ts'
import {
  type AppSum,
  type EntrySums,
  type OtherCause,
  type OtherSum,
  sumOthers,
  sumOwnerCharges,
} from './entry-store.ts'
import { type InvoiceLine, sumLines } from './invoice.ts'
import { type Draws, searchSince, sumPartialCharges } from './partial.ts'
import type { EntryRange } from './ranges.ts'
import { type UsageSum, sumUsage } from './ticket-store.ts'

/** Lines of users' debt in the ledger (decision 63). Their sum equals the debt exactly. */

export interface DebtRange extends EntryRange {
  readonly sums: EntrySums
}

/** An invoice has at most this many lines of usage; the smallest ones are one line. */
const usageLinesMax = 500

/** Returns the lines of each range, whose amounts add up to its debt. */
export async function readDebtLines(
  db: Db,
  ranges: readonly DebtRange[],
  ledger: Draws,
): Promise<ReadonlyMap<UserId, InvoiceLine[]>> {
  const usage = await readUsage(db, ranges, ledger)
  const owned = ranges.filter(({ sums }) => sums.hasOwnerCharges)
  const corrected = ranges.filter(({ sums }) => sums.hasOthers)
  const apps = owned.length === 0 ? [] : await sumOwnerCharges(db, owned)
  const others = corrected.length === 0 ? [] : await sumOthers(db, corrected)
  const appsOf = Map.groupBy(apps, ({ userId }) => userId)
  const othersOf = Map.groupBy(others, ({ userId }) => userId)
  return new Map(
    ranges.map((range) => {
      const { userId } = range
      const parts = {
        usage: usage.get(userId),
        apps: appsOf.get(userId),
        others: othersOf.get(userId),
      }
      return [userId, toDebtLines(range.sums, parts)]
    }),
  )
}

/** Sums of a user's debt by what caused it. */
export interface DebtParts {
  readonly usage?: readonly UsageSum[] | undefined
  readonly apps?: readonly AppSum[] | undefined
  readonly others?: readonly OtherSum[] | undefined
}

/** Returns lines that add up to the debt. Pure. */
export function toDebtLines(
  sums: Pick<EntrySums, 'debt' | 'whole'>,
  { usage = [], apps = [], others = [] }: DebtParts,
): InvoiceLine[] {
  const corrections = others.filter(({ amount }) => amount !== 0n)
  const lines = [...usageLines(usage), ...apps.map(appLine), ...corrections.map(otherLine)]
  return complete(lines, sums)
}

async function readUsage(
  db: Db,
  ranges: readonly DebtRange[],
  ledger: Draws,
): Promise<ReadonlyMap<UserId, UsageSum[]>> {
  const charged = ranges.filter(({ sums }) => sums.whole.tickets > 0n)
  const inPart = ranges.filter(({ sums }) => sums.hasPartial)
  const [whole, partial] = [
    await readWhole(db, charged),
    await sumPartialCharges(db, inPart, ledger),
  ]
  return Map.groupBy([...whole, ...partial], ({ userId }) => userId)
}

/** Looks for tickets near their booking first, then everywhere for users with older tickets. */
async function readWhole(db: Db, ranges: readonly DebtRange[]): Promise<UsageSum[]> {
  if (ranges.length === 0) return []
  const near = await sumUsage(
    db,
    ranges.map((range) => {
      const { first } = range.sums.whole
      return { ...range, signedSince: first && searchSince(first) }
    }),
  )
  const byUser = Map.groupBy(near, ({ userId }) => userId)
  const incomplete = ranges.filter(({ userId, sums: { whole } }) => {
    const own = byUser.get(userId) ?? []
    return own.reduce((count, { tickets }) => count + tickets, 0n) !== whole.tickets
  })
  if (incomplete.length === 0) return near
  const missed = new Set(incomplete.map(({ userId }) => userId))
  const all = await sumUsage(
    db,
    incomplete.map((range) => ({ ...range, signedSince: null })),
  )
  return [...near.filter(({ userId }) => !missed.has(userId)), ...all]
}

function usageLines(sums: readonly UsageSum[]): InvoiceLine[] {
  const merged = merge(sums)
  const largest = merged.length > usageLinesMax ? merged.slice(0, usageLinesMax - 1) : merged
  const rest = merged.slice(largest.length)
  const lines = largest.map(usageLine)
  const [first] = rest
  if (!first) return lines
  const tickets = rest.reduce((sum, one) => sum + one.tickets, 0n)
  return [
    ...lines,
    {
      kind: 'usage',
      description: `Usage of ${rest.length} other models`,
      amount: sumLines(rest),
      tickets,
      periodStart: earliest(rest),
      periodEnd: after(latest(rest)),
    },
  ]
}

/** Joins the sums of one pipeline and model, largest first. */
function merge(sums: readonly UsageSum[]): UsageSum[] {
  const groups = Map.groupBy(sums, ({ pipeline, modelId, isLate }) =>
    [pipeline, modelId, isLate].join('\n'),
  )
  const merged = [...groups.values()].flatMap((same) => {
    const [one] = same
    if (!one) return []
    const tickets = same.reduce((sum, { tickets: count }) => sum + count, 0n)
    const [first, last] = [earliest(same), latest(same)]
    return [{ ...one, amount: sumLines(same), tickets, first, last }]
  })
  return merged
    .filter(({ amount }) => amount !== 0n)
    .toSorted((a, b) => Number(a.isLate) - Number(b.isLate) || compareAmounts(a, b))
}

const compareAmounts = (a: UsageSum, b: UsageSum): number =>
  a.amount === b.amount ? (nameOf(a) < nameOf(b) ? -1 : 1) : a.amount > b.amount ? -1 : 1

const nameOf = ({ pipeline, modelId }: Pick<UsageSum, 'pipeline' | 'modelId'>): string =>
  modelId === '' ? pipeline || 'unnamed pipeline' : `${pipeline || 'unnamed pipeline'}, ${modelId}`

const usageLine = (sum: UsageSum): InvoiceLine => ({
  kind: sum.isLate ? 'other' : 'usage',
  description: sum.isLate ? `Late usage of an earlier period: ${nameOf(sum)}` : nameOf(sum),
  pipeline: sum.pipeline,
  modelId: sum.modelId,
  tickets: sum.tickets,
  amount: sum.amount,
  periodStart: sum.first,
  periodEnd: after(sum.last),
})

const appLine = (sum: AppSum): InvoiceLine => ({
  kind: 'usage',
  description: `Usage of the app ${sum.appName}`,
  chargedAppId: sum.chargedAppId,
  tickets: sum.tickets,
  amount: sum.amount,
  periodStart: sum.first,
  periodEnd: after(sum.last),
})

const causes: { readonly [Cause in OtherCause]: string } = {
  estimate: 'Estimate for signed calls whose tickets are lost',
  estimate_returned: 'Estimates returned, because the tickets arrived',
  top_up_returned: 'Refunded or disputed top-ups: the part that was spent',
  correction: 'Corrections',
  credit_note: 'Credit notes',
  payment_returned: 'Refunded or disputed payments',
  application_fee: "Collected with your users' payments",
}

const otherLine = ({ cause, amount, first, last }: OtherSum): InvoiceLine => ({
  kind: 'other',
  description: causes[cause],
  amount,
  periodStart: first,
  periodEnd: after(last),
})

/** Adds a line for usage whose tickets are no longer in the database. */
function complete(
  lines: readonly InvoiceLine[],
  sums: Pick<EntrySums, 'debt' | 'whole'>,
): InvoiceLine[] {
  const missing: UsdAttos = usdAttos(sums.debt - sumLines(lines))
  if (missing === 0n) return [...lines]
  const at = sums.whole.first ?? new Date(0)
  return [
    ...lines,
    {
      kind: 'usage',
      description: 'Usage whose tickets are archived',
      isArchived: true,
      amount: missing,
      periodStart: at,
      periodEnd: after(at),
    },
  ]
}

/** The exclusive end of a span whose last instant is `last`. */
const after = (last: Date): Date => new Date(last.getTime() + 1)

const earliest = (sums: readonly UsageSum[]): Date =>
  sums.reduce((min, { first }) => (first < min ? first : min), sums[0]?.first ?? new Date(0))
const latest = (sums: readonly UsageSum[]): Date =>
  sums.reduce((max, { last }) => (last > max ? last : max), sums[0]?.last ?? new Date(0))
