import { type UsdAttos, usdAttos } from '../lib/money.ts'
import type { Period } from '../plans/period.ts'
import type { TicketCharge, UserCharge } from './charge.ts'
import type { Account, Entry, Grant } from './types.ts'

/** The arithmetic of one account, pure: no clock, no database. `store.ts` reads and writes what it changes. */

/** Included usage first, then by priority, expiry (never last), creation, id (decision 33). */
export function burnOrder(a: Grant, b: Grant): number {
  if (a.kind !== b.kind) return a.kind === 'included' ? -1 : 1
  return (
    a.priority - b.priority ||
    (a.expiresAt?.getTime() ?? Infinity) - (b.expiresAt?.getTime() ?? Infinity) ||
    0 ||
    a.createdAt.getTime() - b.createdAt.getTime() ||
    (a.id < b.id ? -1 : 1)
  )
}

type Burning = Pick<TicketCharge, 'signedAt' | 'pipeline' | 'modelId' | 'cost'>

/** May this grant pay for that ticket? Expiry and period are judged by the ticket's own time. */
function covers(grant: Grant, ticket: Burning): boolean {
  if (grant.remaining === 0n) return false
  const signedAt = ticket.signedAt.getTime()
  if (grant.expiresAt !== null && signedAt >= grant.expiresAt.getTime()) return false
  if (grant.kind === 'included') return signedAt >= grant.effectiveAt.getTime()
  return coversFeature(grant.featureKey, ticket)
}

/** The feature that stands for all spend on the network (billing facts, section 4). */
const everything = 'network_spend'

const paysForAnything = (featureKey: string | null): boolean =>
  featureKey === null || featureKey === everything

function coversFeature(featureKey: string | null, { pipeline, modelId }: Burning): boolean {
  return (
    paysForAnything(featureKey) ||
    featureKey === pipeline ||
    featureKey === `${pipeline}:${modelId}`
  )
}

/** Books a change of the balance. */
export function append(account: Account, entry: Omit<Entry, 'seq' | 'balanceAfter'>): void {
  account.seq += 1n
  account.balance = usdAttos(account.balance + entry.amount)
  account.entries.push({ ...entry, seq: account.seq, balanceAfter: account.balance })
}

/** Adds credit. */
export function credit(account: Account, grant: Grant, at: Date): void {
  account.grants.push(grant)
  account.grants.sort(burnOrder)
  account.granted = usdAttos(account.granted + grant.amount)
  if (grant.kind === 'grant') account.topup = usdAttos(account.topup + grant.amount)
  append(account, {
    kind: 'grant',
    amount: grant.amount,
    overage: usdAttos(0n),
    causeId: grant.id,
    createdAt: at,
  })
}

/** Burns a user's tickets in the order of their signing and books them as one charge. */
export function burn(
  account: Account,
  charge: UserCharge & { readonly id: string; readonly at: Date },
): void {
  const { tickets, cost, from: signedAt } = charge
  const burning = isOne(account, charge)
    ? [{ signedAt, pipeline: '', modelId: '', cost }]
    : charge.each().toSorted(bySigning)
  const periodFrom = account.periodCountsFrom.getTime()
  let drawn = 0n
  for (const part of burning) {
    drawn += draw(account.grants, part)
    if (part.signedAt.getTime() >= periodFrom)
      account.periodConsumed = usdAttos(account.periodConsumed + part.cost)
  }
  const overage = usdAttos(cost - drawn)
  account.consumed = usdAttos(account.consumed + cost)
  account.overage = usdAttos(account.overage + overage)
  append(account, {
    kind: 'charge',
    amount: usdAttos(-drawn),
    overage,
    causeId: charge.id,
    createdAt: charge.at,
    tickets,
  })
}

const bySigning = (a: TicketCharge, b: TicketCharge): number =>
  a.signedAt.getTime() - b.signedAt.getTime() || (a.eventId < b.eventId ? -1 : 1)

/** True when each grant pays for all of the tickets or for none: then they burn as one, to the same end. */
function isOne({ grants, periodCountsFrom }: Account, { from, to }: UserCharge): boolean {
  const parts = (boundary: Date): boolean => from < boundary && boundary <= to
  return (
    !parts(periodCountsFrom) &&
    grants.every(
      (grant) =>
        grant.remaining === 0n ||
        (paysForAnything(grant.featureKey) &&
          !parts(grant.effectiveAt) &&
          !(grant.expiresAt && parts(grant.expiresAt))),
    )
  )
}

/** Takes a ticket's cost from grants in burn order, as far as they may pay for it; returns what they paid. */
export function draw(grants: readonly Grant[], ticket: Burning): bigint {
  let open: bigint = ticket.cost
  for (const grant of grants) {
    if (open === 0n) break
    if (!covers(grant, ticket)) continue
    const part = grant.remaining < open ? grant.remaining : open
    grant.remaining = usdAttos(grant.remaining - part)
    if (grant.state === 'stored') grant.state = 'changed'
    open -= part
  }
  return ticket.cost - open
}

/** Books, at `at`, what remains of every grant that had ended by `until`. */
export function expire(account: Account, { until, at }: { until: Date; at: Date }): void {
  for (const grant of account.grants) {
    if (grant.expiresAt === null || grant.expiresAt > until || grant.expiredAt !== null) continue
    grant.expiredAt = at
    if (grant.state === 'stored') grant.state = 'changed'
    if (grant.remaining > 0n) {
      account.expired = usdAttos(account.expired + grant.remaining)
      append(account, {
        kind: 'expire',
        amount: usdAttos(-grant.remaining),
        overage: usdAttos(0n),
        causeId: grant.id,
        createdAt: at,
      })
      // What remained stays visible in the entry; the head holds what may still burn.
      grant.remaining = usdAttos(0n)
    }
  }
}

/** Moves to the period that is running and starts its consumption at zero. */
export function enterPeriod(
  account: Account,
  period: Period,
  countsFrom: Date = period.start,
): void {
  account.periodStart = period.start
  account.periodEnd = period.end
  account.periodCountsFrom = countsFrom
  account.periodConsumed = usdAttos(0n)
}

/** What may be spent at `at`: of all grants that are in effect. */
export function remainingAt(grants: readonly Grant[], at: Date): UsdAttos {
  return usdAttos(activeAt(grants, at).reduce((sum: bigint, grant) => sum + grant.remaining, 0n))
}

/**
 * What admits a payment at `at`: of the grants in effect those that pay for anything. Which feature a payment is for is
 * known only when its ticket comes, so that money bound to one feature vouches for none.
 */
export function spendableAt(grants: readonly Grant[], at: Date): UsdAttos {
  return remainingAt(
    grants.filter(({ featureKey }) => paysForAnything(featureKey)),
    at,
  )
}

/** Grants in effect at `at`. */
export const activeAt = (grants: readonly Grant[], at: Date): Grant[] =>
  grants.filter(
    (grant) =>
      grant.expiredAt === null &&
      grant.effectiveAt <= at &&
      (grant.expiresAt === null || grant.expiresAt > at),
  )
