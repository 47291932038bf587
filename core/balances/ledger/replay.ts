import { type UsdAttos, usdAttos } from '../../lib/money.ts'
import { lateMs } from '../../shared/late-tickets.ts'
import { type Account, type EnteredPeriod, endIncluded, newAccount } from '../accounts/account.ts'
import { adjust } from '../accounts/adjusting.ts'
import { burn, burnForOwner, createCharge } from '../accounts/burning.ts'
import {
  type CreditDebit,
  adjustmentFacts,
  chargeFacts,
  creditFacts,
  hashEntry,
} from '../accounts/chain.ts'
import { type Credit, burnOrder } from '../accounts/credits.ts'
import {
  type AccountFacts,
  type ChargedTickets,
  type Compare,
  type ReplayFinding,
  type StoredAdjustment,
  type StoredEntry,
  comparer,
} from './facts.ts'
import { closingFindings } from './replay-end.ts'
import type { IncludedUse } from './replay-periods.ts'

/**
 * Replays one user's ledger from its facts (credits, adjustments, terms, and the tickets of each
 * charge, in booking order) by the rules that booked them, and reports stored values that differ.
 * Continues from the stored values, so that each fault is reported once.
 */

const isIncluded = ({ kind }: Credit): boolean => kind === 'included'

/** Replays one user. Call `step` for each entry in order, then `end`. */
export function createReplay(facts: AccountFacts) {
  const account = newAccount(facts.owner)
  /** Number of the entry that gave each credit, by credit id. */
  const opened = new Map<string, bigint>()
  const expired = new Map<string, Date>()
  /** By id of included usage: the period in which it was given, and when it ends. */
  const includedIn = new Map<string, IncludedUse>()
  let running: EnteredPeriod | null = null
  let head: string | null = null
  let last = new Date(0)
  let lastSeq = 0n
  let consumed = 0n
  /** Overage of adjustments; no more than that may be taken back. */
  let overdrawn = 0n

  /** Applies an entry. Returns its faults. */
  function step(entry: StoredEntry, tickets: ChargedTickets): ReplayFinding[] {
    const key = { seq: String(entry.seq) }
    const compare = comparer('ledger_entries', key)
    enterPeriods(entry.seq)
    const findings = checkChain(entry, compare)
    if (entry.createdAt < last)
      findings.push(
        ...compare('created_at', entry.createdAt.toISOString(), `not before ${last.toISOString()}`),
      )
    last = entry.createdAt
    lastSeq = entry.seq
    findings.push(...book(entry, tickets, compare))
    consumed += entry.periodAmount
    if (entry.kind === 'adjustment') overdrawn += entry.overage
    return findings
  }

  function checkChain(entry: StoredEntry, compare: Compare): ReplayFinding[] {
    const expected = hashEntry(facts.owner, head, { ...entry, facts: factsOf(entry) })
    head = entry.hash
    return compare('hash', entry.hash, expected)
  }

  function factsOf(entry: StoredEntry): readonly (string | null)[] {
    const { kind, causeId, draws } = entry
    if (kind === 'charge') return chargeFacts(entry)
    const credit = facts.credits.get(causeId)
    if (kind === 'grant') return credit ? creditFacts(withFirstEnd(credit)) : []
    const adjustment = facts.adjustments.get(causeId)
    if (kind !== 'adjustment' || !adjustment) return []
    const returned = draws.flatMap(({ creditId }) => {
      const one = facts.credits.get(creditId)
      return one && !opened.has(creditId) ? creditFacts(one) : []
    })
    return [...adjustmentFacts(adjustment), ...returned]
  }

  /** Included usage is given until the end of its period; a plan change may end it earlier. */
  const withFirstEnd = (credit: Credit): Credit =>
    isIncluded(credit) && running ? { ...credit, expiresAt: running.end } : credit

  function enterPeriods(seq: bigint): void {
    for (const period of facts.periods) {
      if (period.afterSeq !== seq - 1n) continue
      account.periodCountsFrom = period.countsFrom
      consumed = 0n
      endIncluded(account, period.start)
      for (const [id, { period: includedPeriod, end }] of includedIn)
        if (end > period.start) includedIn.set(id, { period: includedPeriod, end: period.start })
      running = period
    }
  }

  function book(entry: StoredEntry, tickets: ChargedTickets, compare: Compare): ReplayFinding[] {
    if (entry.kind === 'grant')
      return open({ id: entry.causeId, seq: entry.seq, isFull: true }, compare)
    if (entry.kind === 'expire') return expire({ account, expired }, entry, compare)
    if (entry.kind === 'adjustment') return correct(entry, compare)
    if (entry.kind === 'payment') return compare('overage_attos', String(entry.overage), '0')
    return entry.kind === 'charge' ? charge(entry, tickets, compare) : []
  }

  function open(
    { id, seq, isFull }: { id: string; seq: bigint; isFull: boolean },
    compare: Compare,
  ): ReplayFinding[] {
    const credit = facts.credits.get(id)
    if (!credit) return compare('cause_id', id, null)
    opened.set(id, seq)
    if (isIncluded(credit) && running) includedIn.set(id, { period: running, end: running.end })
    account.credits.push({
      ...withFirstEnd(credit),
      remaining: isFull ? credit.amount : usdAttos(0n),
      expiredAt: null,
      state: 'stored',
    })
    account.credits.sort(burnOrder)
    return []
  }

  function correct(entry: StoredEntry, compare: Compare): ReplayFinding[] {
    const adjustment = facts.adjustments.get(entry.causeId)
    if (!adjustment) return compare('cause_id', entry.causeId, null)
    if (entry.amount > 0n || adjustment.amount > 0n) return giveBack(entry, adjustment, compare)
    account.lent = adjustment.held
    const before = remainingOf(account)
    adjust(account, { ...adjustment, id: entry.causeId, feature: adjustment.feature })
    return settle(account, { entry, before }, compare)
  }

  function giveBack(
    entry: StoredEntry,
    adjustment: StoredAdjustment,
    compare: Compare,
  ): ReplayFinding[] {
    const { draws } = entry
    const sum = draws.reduce((total, { amount }) => total + amount, 0n)
    const unpaid = max(entry.amount - adjustment.amount, -overdrawn)
    return [
      ...draws.flatMap(({ creditId }) =>
        opened.has(creditId) ? [] : open({ id: creditId, seq: entry.seq, isFull: false }, compare),
      ),
      ...apply(account, draws, compare),
      ...compare('credit_attos', String(sum), String(entry.amount)),
      ...compare('overage_attos', String(entry.overage), String(unpaid)),
    ]
  }

  function charge(
    entry: StoredEntry,
    { tickets, hash, isArchived }: ChargedTickets,
    compare: Compare,
  ): ReplayFinding[] {
    if (entry.chargedApp !== null) return chargeOwner(account, entry, compare)
    // The check of charges reports a charge without tickets.
    if (isArchived || tickets.length === 0) return apply(account, entry.draws, compare)
    const before = remainingOf(account)
    burn(account, { ...createCharge(account, tickets, entry.causeId), at: entry.createdAt })
    return [
      ...settle(account, { entry, before }, compare),
      ...(entry.ticketsHash === null ? [] : compare('tickets_hash', entry.ticketsHash, hash)),
    ]
  }

  /** Returns the faults of credits, balance, periods and subscriptions after the last entry. */
  function end(): ReplayFinding[] {
    enterPeriods(lastSeq + 1n)
    const sums = { remaining: remainingOf(account), head, last, lastSeq, consumed }
    return closingFindings({ facts, opened, expired, includedIn, ...sums })
  }

  return { step, end }
}

const max = (a: bigint, b: bigint): bigint => (a > b ? a : b)

/**
 * Compares an owner charge with the burn of its amount. Other checks compare the amount with the
 * tickets.
 */
function chargeOwner(account: Account, entry: StoredEntry, compare: Compare): ReplayFinding[] {
  const { causeId: id, chargedApp, tickets, ratesKnownAt, createdAt } = entry
  if (chargedApp === null) return []
  const before = remainingOf(account)
  const amount = usdAttos(entry.overage - entry.amount)
  const charge = { id, chargedApp, amount, tickets: tickets ?? 0, ratesKnownAt }
  burnForOwner(account, charge, createdAt)
  return settle(account, { entry, before }, compare)
}

export type CreateReplay = typeof createReplay

function expire(
  { account, expired }: { readonly account: Account; readonly expired: Map<string, Date> },
  entry: StoredEntry,
  compare: Compare,
): ReplayFinding[] {
  const credit = account.credits.find(({ id }) => id === entry.causeId)
  if (!credit) return compare('cause_id', entry.causeId, null)
  account.credits = account.credits.filter((one) => one !== credit)
  expired.set(credit.id, entry.createdAt)
  const due = credit.expiresAt && new Date(credit.expiresAt.getTime() + lateMs)
  const isEarly = due === null || entry.createdAt < due
  return [
    ...compare('amount_attos', String(entry.amount), String(-credit.remaining)),
    ...(isEarly
      ? compare('created_at', entry.createdAt.toISOString(), due?.toISOString() ?? null)
      : []),
  ]
}

const drawsText = (draws: readonly CreditDebit[]): string =>
  draws.map(({ creditId, amount }) => `${creditId} ${amount}`).join(', ')

const remainingOf = ({ credits }: Account): Map<string, UsdAttos> =>
  new Map(credits.map((credit) => [credit.id, credit.remaining]))

/**
 * Compares an entry with the one that the rules just made, then continues from the stored draws.
 */
function settle(
  account: Account,
  { entry, before }: { entry: StoredEntry; before: ReadonlyMap<string, UsdAttos> },
  compare: Compare,
): ReplayFinding[] {
  const expected = account.entries.pop()
  account.entries.length = 0
  if (!expected) return []
  const findings = [
    ...compare('amount_attos', String(entry.amount), String(expected.amount)),
    ...compare('overage_attos', String(entry.overage), String(expected.overage)),
    ...compare('credit_attos', drawsText(entry.draws), drawsText(expected.draws)),
  ]
  if (entry.kind === 'charge')
    findings.push(
      ...compare('period_attos', String(entry.periodAmount), String(expected.periodAmount)),
      ...compare('ticket_count', String(entry.tickets), String(expected.tickets)),
    )
  if (findings.length === 0) return findings
  for (const credit of account.credits) credit.remaining = before.get(credit.id) ?? usdAttos(0n)
  return findings.concat(apply(account, entry.draws, compare))
}

/** Applies the stored draws of an entry. */
function apply(account: Account, draws: readonly CreditDebit[], compare: Compare): ReplayFinding[] {
  return draws.flatMap(({ creditId, amount }) => {
    const credit = account.credits.find(({ id }) => id === creditId)
    if (!credit) return compare('credit_ids', creditId, null)
    const left = credit.remaining + amount
    if (left < 0n || left > credit.amount)
      return compare('credit_attos', String(amount), String(-credit.remaining))
    credit.remaining = usdAttos(left)
    return []
  })
}
