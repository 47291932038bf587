import type { Credit } from '../../balances/accounts/credits.ts'
import type { BurntTicket } from '../../balances/accounts/burning.ts'
import type { SimulateLedger, Trial } from '../../balances/ledger/trial.ts'
import { type EthRate, type UsdAttos, networkRatio, computeRetail } from '../../lib/money.ts'
import { type Period, periodAt } from '../../lib/time.ts'
import type { AppId } from '../../shared/ids.ts'
import type { PlanDraft } from '../../plans/offers/service.ts'
import type { WhatIfRange } from './input.ts'
import type { BookedTicket, ReplayedUser } from './store.ts'

/**
 * Replays one user's tickets twice: as booked, with the user's actual credits; and on the draft, if
 * given (docs/whatif.md).
 */

export interface ReplayOptions {
  readonly simulateLedger: SimulateLedger
  readonly appId: AppId
  readonly user: ReplayedUser
  /** Null for a user who stays on the current plan. */
  readonly draft: PlanDraft | null
  /** Ends at the current time at the latest. */
  readonly range: WhatIfRange
}

export type TrialSums = ReturnType<Trial['sums']>

/** Result of a user's replay, in atto-dollars. */
export interface UserOutcome {
  readonly user: ReplayedUser
  readonly draft: PlanDraft | null
  readonly tickets: number
  readonly unpriced: number
  readonly cost: bigint
  readonly platformFee: bigint
  readonly today: TrialSums & { readonly revenue: bigint }
  readonly whatIf: TrialSums & { readonly revenue: bigint }
}

/** Tickets that are burned together. */
const chunkMax = 1_000
const beginning = new Date(0)

export function replayUser({ simulateLedger, appId, user, draft, range }: ReplayOptions) {
  const { userId, credits } = user
  // Credit granted during the range must not pay for earlier tickets. Included usage has its own
  // start time.
  const isLater = ({ kind, createdAt }: Credit): boolean =>
    kind !== 'included' && createdAt > range.from
  const [later, early] = [credits.filter(isLater), credits.filter((credit) => !isLater(credit))]
  const gifts = later.toSorted((a, b) => b.createdAt.getTime() - a.createdAt.getTime())
  const booked = simulateLedger({ appId, userId, credits: early })
  const grants = early.filter(({ kind }) => kind !== 'included')
  const drafted = draft && simulateLedger({ appId, userId, credits: grants })
  const periods = draft && drafted && enterPeriods(drafted, { draft, user, range })
  let bookedChunk: BurntTicket[] = []
  let draftedChunk: BurntTicket[] = []
  let [tickets, unpriced] = [0, 0]
  let [cost, platformFee, retail, draftRetail] = [0n, 0n, 0n, 0n]
  let eventAt = nextEvent()

  function nextEvent(): number {
    const gift = gifts.at(-1)?.createdAt.getTime() ?? Infinity
    return Math.min(gift, periods?.endMs() ?? Infinity)
  }

  function flush(): void {
    booked.spend(bookedChunk)
    drafted?.spend(draftedChunk)
    if (bookedChunk.length > 0) [bookedChunk, draftedChunk] = [[], []]
  }

  function give(gift: Credit): void {
    gifts.pop()
    booked.give({ ...gift })
    drafted?.give({ ...gift })
  }

  /** Applies the events up to this time: granted credits, and new periods of the draft. */
  function advance(ms: number): void {
    while (eventAt <= ms) {
      flush()
      const gift = gifts.at(-1)
      if (gift && gift.createdAt.getTime() <= eventAt) give(gift)
      else periods?.enterAt(ms)
      eventAt = nextEvent()
    }
  }

  /** Tickets must be added in order of signing. */
  function add(ticket: BookedTicket, rateOf: (id: bigint) => EthRate): void {
    tickets += 1
    const { price, signedMs, eventId, pipeline, modelId } = ticket
    if (price === null) {
      unpriced += 1
      return
    }
    advance(signedMs)
    const replayed = { eventId, pipeline, modelId, signedAt: new Date(signedMs) }
    cost += price.cost
    platformFee += price.platformFee
    retail += price.retail
    bookedChunk.push({ ...replayed, cost: price.retail })
    if (draft) {
      const sold = soldAt(draft, ticket, { cost: price.cost, rate: rateOf(price.rateId) })
      draftRetail += sold
      draftedChunk.push({ ...replayed, cost: sold })
    }
    if (bookedChunk.length >= chunkMax) flush()
  }

  function end(): UserOutcome {
    advance(range.to.getTime() - 1)
    flush()
    const today = { ...booked.sums(), revenue: retail }
    const whatIf = drafted ? { ...drafted.sums(), revenue: draftRetail } : today
    return { user, draft, tickets, unpriced, cost, platformFee, today, whatIf }
  }

  return { userId, add, end }
}

export type UserReplay = ReturnType<typeof replayUser>

/**
 * Returns the price of a ticket on a draft. Network price is the booked cost, with its rounding.
 */
function soldAt(
  draft: PlanDraft,
  ticket: BookedTicket,
  { cost, rate }: { readonly cost: UsdAttos; readonly rate: EthRate },
): UsdAttos {
  const ratio = draft.ratioOf(ticket)
  return ratio === networkRatio ? cost : computeRetail(ticket.fee, rate, ratio)
}

/** Enters the periods of a draft in an account as they begin. */
function enterPeriods(
  trial: Trial,
  { draft, user, range }: Pick<ReplayOptions, 'user' | 'range'> & { readonly draft: PlanDraft },
) {
  const { anchor, used } = firstPeriod(user, draft, range)
  let period: Period = periodAt(anchor, draft.cycle, range.from)
  const rest = draft.included > used ? draft.included - used : 0n
  trial.enter({ ...period, included: rest, countsFrom: beginning })

  const after = ({ end }: Period): Period => periodAt(anchor, draft.cycle, end)

  /** Enters the period at this time, after the current one has ended. */
  function enterAt(ms: number): void {
    period = after(period)
    while (period.end.getTime() <= ms) {
      trial.skip(draft.included)
      period = after(period)
    }
    trial.enter({ ...period, included: draft.included, countsFrom: period.start })
  }

  return { enterAt, endMs: () => period.end.getTime() }
}

/**
 * Returns the anchor of the periods. A draft with the same cycle continues the current period,
 * including the used part of its included usage. A draft with another cycle begins with the range,
 * as a change of plan does.
 */
function firstPeriod(
  { period, anchorAt, credits }: ReplayedUser,
  { cycle }: PlanDraft,
  { from }: WhatIfRange,
): { anchor: Date; used: bigint } {
  if (!period?.isRunning) return { anchor: period?.start ?? anchorAt, used: 0n }
  if (period.cycle !== cycle) return { anchor: from, used: 0n }
  const counted = periodAt(anchorAt, cycle, period.start).start.getTime()
  const used = credits
    .filter(({ kind, createdAt }) => kind === 'included' && createdAt <= from)
    .reduce((sum: bigint, { amount, remaining }) => sum + amount - remaining, 0n)
  const anchor = counted === period.start.getTime() ? anchorAt : period.start
  return { anchor, used }
}
