import { type UsdAttos, usdAttos } from '../lib/money.ts'
import { appId, userId } from '../platform/ids.ts'
import type { TicketCharge } from '../metering/ingest/charges.ts'
import {
  type Account,
  type Credit,
  type EnteredPeriod,
  type Entry,
  adjust,
  burn,
  burnOrder,
  endIncluded,
  lateMs,
} from './account.ts'
import {
  type ChainOwner,
  type CreditDebit,
  adjustmentFacts,
  creditFacts,
  hashEntry,
} from './chain.ts'
import {
  type PlanVersion,
  type Slot,
  type Terms,
  raiseBetween,
  termsAt,
  versionsByPlan,
  withheldFrom,
} from './terms.ts'

/**
 * Replays one user's ledger from its facts (credits, adjustments, terms, and the tickets of each
 * charge, in booking order) by the rules that booked them, and reports stored values that differ.
 * Continues from the stored values, so that each fault is reported once.
 */

/** An entry as stored. */
export interface StoredEntry extends Omit<Entry, 'facts' | 'tickets' | 'draws'> {
  readonly tickets: number | null
  /** Null for an entry written before draws were recorded. */
  readonly draws: readonly CreditDebit[] | null
  readonly hash: string
}

/** The tickets of a charge, with their hash. */
export interface ChargedTickets {
  readonly tickets: readonly TicketCharge[]
  readonly hash: string | null
  /**
   * True if some tickets are only in an archive. The stored draws of the charge are then accepted.
   */
  readonly isArchived: boolean
}

export interface StoredAdjustment {
  readonly amount: UsdAttos
  readonly reason: string
  readonly author: string
  readonly eventId: string | null
  readonly at: Date
  /** Null for an adjustment older than the column. */
  readonly held: UsdAttos | null
  readonly feature: { readonly pipeline: string; readonly modelId: string } | null
}

/** The facts about a user, without the ledger entries. */
export interface AccountFacts {
  readonly owner: ChainOwner
  /** Credits by id, with their stored remaining amounts. */
  readonly credits: ReadonlyMap<string, Credit>
  readonly adjustments: ReadonlyMap<string, StoredAdjustment>
  /** In order. */
  readonly periods: readonly EnteredPeriod[]
  /**
   * Subscriptions that held the slot, in order. The last one holds it now and may have a successor.
   */
  readonly subscriptions: readonly HeldSubscription[]
  readonly versions: readonly PlanVersion[]
  readonly balance: StoredBalance | null
}

export interface HeldSubscription extends Slot {
  readonly id: string
  /** Null for the subscription that holds the slot. */
  readonly endedAt: Date | null
}

export interface StoredBalance extends Pick<
  Account,
  'periodStart' | 'periodEnd' | 'periodCountsFrom' | 'periodConsumed'
> {
  readonly bookedThrough: Date
  readonly head: string | null
}

/** A stored column that differs from the value computed from the facts. */
export interface ReplayFinding {
  readonly table: 'ledger_entries' | 'grants' | 'balances' | 'periods' | 'subscriptions'
  readonly key: Readonly<Record<string, string>>
  readonly column: string
  readonly stored: string | null
  readonly expected: string | null
}

// A plan's new version may be committed a moment after another core entered a period.
const slackMs = 60_000

const isIncluded = ({ kind }: Credit): boolean => kind === 'included'

/** Replays one user. Call `step` for each entry in order, then `end`. */
export function createReplay(facts: AccountFacts) {
  const account = emptyAccount(facts.owner)
  /** Number of the entry that gave each credit, by credit id. */
  const opened = new Map<string, bigint>()
  const expired = new Map<string, Date>()
  /** By id of included usage: the period in which it was given, and when it ends. */
  const includedIn = new Map<string, { readonly period: EnteredPeriod; readonly end: Date }>()
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
    const expected = hashEntry(facts.owner, head, {
      ...entry,
      draws: entry.draws ?? [],
      facts: factsOf(entry),
    })
    head = entry.hash
    return compare('hash', entry.hash, expected)
  }

  function factsOf({ kind, causeId, draws }: StoredEntry): readonly (string | null)[] {
    const credit = facts.credits.get(causeId)
    if (kind === 'grant') return credit ? creditFacts(withFirstEnd(credit)) : []
    const adjustment = facts.adjustments.get(causeId)
    if (kind !== 'adjustment' || !adjustment) return []
    const returned = (draws ?? []).flatMap(({ creditId }) => {
      const one = facts.credits.get(creditId)
      return one && !opened.has(creditId) ? creditFacts(one) : []
    })
    return [...adjustmentFacts({ ...adjustment, held: adjustment.held ?? 0n }), ...returned]
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
      for (const [id, { period: of, end }] of includedIn)
        if (end > period.start) includedIn.set(id, { period: of, end: period.start })
      running = period
    }
  }

  function book(entry: StoredEntry, tickets: ChargedTickets, compare: Compare): ReplayFinding[] {
    if (entry.kind === 'grant')
      return open({ id: entry.causeId, seq: entry.seq, isFull: true }, compare)
    if (entry.kind === 'expire') return expire(entry, compare)
    if (entry.kind === 'adjustment') return correct(entry, compare)
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

  function expire(entry: StoredEntry, compare: Compare): ReplayFinding[] {
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

  function correct(entry: StoredEntry, compare: Compare): ReplayFinding[] {
    const adjustment = facts.adjustments.get(entry.causeId)
    if (!adjustment) return compare('cause_id', entry.causeId, null)
    if (entry.amount > 0n || adjustment.amount > 0n) return giveBack(entry, adjustment, compare)
    if (adjustment.held === null) return apply(entry.draws ?? [], compare)
    account.lent = adjustment.held
    const before = remaining()
    adjust(account, { ...adjustment, id: entry.causeId, feature: adjustment.feature })
    return settle(entry, before, compare)
  }

  function giveBack(
    entry: StoredEntry,
    adjustment: StoredAdjustment,
    compare: Compare,
  ): ReplayFinding[] {
    const draws = entry.draws ?? [{ creditId: entry.causeId, amount: entry.amount }]
    const sum = draws.reduce((total, { amount }) => total + amount, 0n)
    const unpaid = max(entry.amount - adjustment.amount, -overdrawn)
    return [
      ...draws.flatMap(({ creditId }) =>
        opened.has(creditId) ? [] : open({ id: creditId, seq: entry.seq, isFull: false }, compare),
      ),
      ...apply(draws, compare),
      ...compare('credit_attos', String(sum), String(entry.amount)),
      ...compare('overage_attos', String(entry.overage), String(unpaid)),
    ]
  }

  function charge(
    entry: StoredEntry,
    { tickets, hash, isArchived }: ChargedTickets,
    compare: Compare,
  ): ReplayFinding[] {
    if (isArchived) return apply(entry.draws ?? [], compare)
    const [first] = tickets
    // The check of charges reports a charge without tickets.
    if (!first) return apply(entry.draws ?? [], compare)
    const times = tickets.map(({ signedAt }) => signedAt.getTime())
    const before = remaining()
    burn(account, {
      appId: first.appId,
      userId: first.userId,
      tickets: tickets.length,
      unpriced: 0,
      waited: 0,
      cost: usdAttos(tickets.reduce((sum, { cost }) => sum + cost, 0n)),
      ticketsHash: null,
      from: new Date(times.reduce((a, b) => Math.min(a, b))),
      to: new Date(times.reduce((a, b) => Math.max(a, b))),
      each: () => tickets,
      id: entry.causeId,
      at: entry.createdAt,
      ratesKnownAt: null,
    })
    return [
      ...settle(entry, before, compare),
      ...(entry.ticketsHash === null ? [] : compare('tickets_hash', entry.ticketsHash, hash)),
    ]
  }

  const remaining = (): Map<string, UsdAttos> =>
    new Map(account.credits.map((credit) => [credit.id, credit.remaining]))

  /**
   * Compares an entry with the one that the rules just made, then continues from the stored draws.
   */
  function settle(
    entry: StoredEntry,
    before: ReadonlyMap<string, UsdAttos>,
    compare: Compare,
  ): ReplayFinding[] {
    const expected = account.entries.pop()
    account.entries.length = 0
    if (!expected) return []
    const findings = [
      ...compare('amount_attos', String(entry.amount), String(expected.amount)),
      ...compare('overage_attos', String(entry.overage), String(expected.overage)),
    ]
    if (entry.draws === null) return findings
    findings.push(...compare('credit_attos', drawsText(entry.draws), drawsText(expected.draws)))
    if (entry.kind === 'charge')
      findings.push(
        ...compare('period_attos', String(entry.periodAmount), String(expected.periodAmount)),
        ...compare('ticket_count', String(entry.tickets), String(expected.tickets)),
      )
    if (findings.length === 0) return findings
    for (const credit of account.credits) credit.remaining = before.get(credit.id) ?? usdAttos(0n)
    return findings.concat(apply(entry.draws, compare))
  }

  /** Applies the stored draws of an entry. */
  function apply(draws: readonly CreditDebit[], compare: Compare): ReplayFinding[] {
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

  /** Returns the faults of credits, balance, periods and subscriptions after the last entry. */
  function end(): ReplayFinding[] {
    enterPeriods(lastSeq + 1n)
    return [
      ...creditFindings(),
      ...balanceFindings(),
      ...facts.periods.flatMap(periodFindings),
      ...slotFindings(facts.subscriptions),
    ]
  }

  function creditFindings(): ReplayFinding[] {
    const left = remaining()
    return [...facts.credits.values()].flatMap((credit) => {
      const compare = comparer('grants', { id: credit.id })
      const rest = opened.has(credit.id) ? (left.get(credit.id) ?? 0n) : null
      return [
        ...compare(
          'remaining_attos',
          String(credit.remaining),
          rest === null ? null : String(rest),
        ),
        ...endFindings(credit, rest, compare),
        ...givenFindings(credit, compare),
      ]
    })
  }

  /**
   * Included usage ends with its period. An amount given after the start of the period must equal
   * the raise by a newer version.
   */
  function givenFindings(credit: Credit, compare: Compare): ReplayFinding[] {
    const usage = includedIn.get(credit.id)
    if (!usage) return []
    const { period, end: endsAt } = usage
    const findings = compare(
      'expires_at',
      credit.expiresAt?.toISOString() ?? null,
      endsAt.toISOString(),
    )
    if (credit.effectiveAt.getTime() === period.countsFrom.getTime()) return findings
    const versions = facts.versions.filter(({ planId }) => planId === period.terms.planId)
    const to = versions.find(
      ({ createdAt }) => createdAt.getTime() === credit.effectiveAt.getTime(),
    )
    const amount = to && raiseBetween(versions, { from: period.terms.planVersion, to })
    return findings.concat(
      compare('amount_attos', String(credit.amount), amount === undefined ? null : String(amount)),
    )
  }

  /**
   * An entry records when a credit ended. Without an entry, nothing remained and the credit ended
   * when due.
   */
  function endFindings(credit: Credit, rest: bigint | null, compare: Compare): ReplayFinding[] {
    const { expiredAt } = credit
    const end = expired.get(credit.id) ?? null
    if (end === null && expiredAt === null) return []
    if (end === null && rest === 0n && isDue(credit)) return []
    return compare('expired_at', expiredAt?.toISOString() ?? null, end?.toISOString() ?? null)
  }

  function balanceFindings(): ReplayFinding[] {
    const { balance, periods } = facts
    if (!balance) return []
    const compare = comparer('balances', {})
    const period = periods.at(-1)
    const findings = compare('head_hash', balance.head, head)
    if (balance.bookedThrough < last)
      findings.push(
        ...compare('booked_through', balance.bookedThrough.toISOString(), last.toISOString()),
      )
    if (!period) return findings
    findings.push(
      ...compare('period_start', balance.periodStart.toISOString(), period.start.toISOString()),
      ...compare('period_end', balance.periodEnd.toISOString(), period.end.toISOString()),
      ...compare(
        'period_counts_from',
        balance.periodCountsFrom.toISOString(),
        period.countsFrom.toISOString(),
      ),
    )
    const sum = lastSeq > period.afterSeq ? consumed : 0n
    return findings.concat(
      compare('period_consumed_attos', String(balance.periodConsumed), String(sum)),
    )
  }

  function periodFindings(period: EnteredPeriod, index: number): ReplayFinding[] {
    const compare = comparer('periods', { starts_at: period.start.toISOString() })
    const expected = expectedTerms(period)
    if (expected === null) return compare('plan_id', period.terms.planId, null)
    const countsFrom = index === 0 && period.afterSeq === 0n ? new Date(0) : period.start
    return [
      ...compare('starts_at', period.start.toISOString(), expected.period.start.toISOString()),
      ...compare('ends_at', period.end.toISOString(), expected.period.end.toISOString()),
      ...compare('counts_from', period.countsFrom.toISOString(), countsFrom.toISOString()),
      ...compare('plan_id', period.terms.planId, expected.planId),
      ...compare('plan_version', String(period.terms.planVersion), String(expected.planVersion)),
      ...compare(
        'included_attos',
        String(period.terms.includedAttos),
        String(expected.includedAttos),
      ),
      ...enteredFindings(period, compare),
      ...withheldFindings(period, { expected, compare }),
      ...includedFindings(period, compare),
    ]
  }

  /** Old periods, entered before free plans withheld anything, have no such figure. */
  function withheldFindings(
    { terms: { withheldAttos = null }, start }: EnteredPeriod,
    { expected, compare }: { expected: Terms; compare: Compare },
  ): ReplayFinding[] {
    if (withheldAttos === null) return []
    const earlier = facts.periods.filter((one) => one.start < start && isFree(one.terms))
    const withheld = withheldFrom(
      expected,
      earlier.map((one) => ({
        planId: one.terms.planId,
        start: one.start,
        givenAttos: givenIn(one),
      })),
    )
    return compare('withheld_attos', String(withheldAttos), String(withheld))
  }

  const isFree = ({ planId, planVersion }: EnteredPeriod['terms']): boolean =>
    facts.versions.some(
      (one) => one.planId === planId && one.version === planVersion && one.isFree === true,
    )

  /**
   * Computes a period's terms from the subscription that held the slot at its start. Returns null
   * if the subscription or the versions of its plans are missing.
   */
  function expectedTerms({ start, enteredAt, terms }: EnteredPeriod): Terms | null {
    const { subscriptions, versions } = facts
    const slot = subscriptions.findLast(({ createdAt }) => createdAt <= start) ?? subscriptions[0]
    if (!slot || !knowsPlans(versions, slot)) return null
    const expected = termsAt(slot, versionsByPlan(versions), start)
    if (expected.planVersion === terms.planVersion) return expected
    // A version created just before the period was entered may have been committed too late for it.
    const seen = versions.filter(
      ({ planId, version, createdAt }) =>
        planId !== terms.planId ||
        version <= terms.planVersion ||
        createdAt.getTime() <= enteredAt.getTime() - slackMs,
    )
    return knowsPlans(seen, slot) ? termsAt(slot, versionsByPlan(seen), start) : expected
  }

  function enteredFindings(
    { start, end: endsAt, enteredAt }: EnteredPeriod,
    compare: Compare,
  ): ReplayFinding[] {
    const isWithin =
      enteredAt.getTime() >= start.getTime() - slackMs &&
      enteredAt.getTime() <= endsAt.getTime() + slackMs
    return isWithin
      ? []
      : compare(
          'entered_at',
          enteredAt.toISOString(),
          `within the period from ${start.toISOString()}`,
        )
  }

  /** Checks the credit of a period's included usage. */
  function includedFindings(period: EnteredPeriod, compare: Compare): ReplayFinding[] {
    const includedAttos = givenIn(period)
    const credit = creditFrom(period)
    if (includedAttos === 0n)
      return credit && isRaise(credit, period) ? [] : compare('credit', credit?.id ?? null, null)
    if (!credit) return compare('credit', null, String(includedAttos))
    return [
      ...compare('after_seq', String(period.afterSeq), String((opened.get(credit.id) ?? 0n) - 1n)),
      ...compare('included_attos', String(includedAttos), String(credit.amount)),
      ...compare('entered_at', period.enteredAt.toISOString(), credit.createdAt.toISOString()),
    ]
  }

  /**
   * Returns the included usage from the start of a period; there is one at most for each instant
   * (`grants_included_once`). Ignores a raise that was given in another period: its version may be
   * from the very millisecond in which this period began.
   */
  function creditFrom(period: EnteredPeriod): Credit | undefined {
    const credit = [...facts.credits.values()].find(
      (one) => isIncluded(one) && one.effectiveAt.getTime() === period.countsFrom.getTime(),
    )
    const entered = credit && includedIn.get(credit.id)?.period
    return entered && entered !== period && isRaise(credit, entered) ? undefined : credit
  }

  /** True for a raise by a new version, which takes effect when that version was created. */
  const isRaise = ({ effectiveAt }: Credit, { terms }: EnteredPeriod): boolean =>
    facts.versions.some(
      ({ planId, version, createdAt }) =>
        planId === terms.planId &&
        version > terms.planVersion &&
        createdAt.getTime() === effectiveAt.getTime(),
    )

  return { step, end }
}

const givenIn = ({ terms: { includedAttos, withheldAttos } }: EnteredPeriod): bigint =>
  includedAttos - (withheldAttos ?? 0n)

const max = (a: bigint, b: bigint): bigint => (a > b ? a : b)

const knowsPlans = (versions: readonly PlanVersion[], { planId, next }: Slot): boolean =>
  [planId, next?.planId ?? planId].every((id) => versions.some((version) => version.planId === id))

/** Checks that each subscription begins when the previous one ended. */
const slotFindings = (subscriptions: readonly HeldSubscription[]): ReplayFinding[] =>
  subscriptions.flatMap(({ id, endedAt }, index) => {
    const next = subscriptions[index + 1]
    if (endedAt === null) return []
    return comparer('subscriptions', { id })(
      'ended_at',
      endedAt.toISOString(),
      next?.createdAt.toISOString() ?? null,
    )
  })

/** True if the credit expired after the time for late tickets. */
const isDue = ({ expiresAt, expiredAt }: Credit): boolean =>
  expiresAt !== null && expiredAt !== null && expiredAt.getTime() >= expiresAt.getTime() + lateMs

export type CreateReplay = typeof createReplay

type Compare = (column: string, stored: string | null, expected: string | null) => ReplayFinding[]

const comparer =
  (table: ReplayFinding['table'], key: ReplayFinding['key']): Compare =>
  (column, stored, expected) =>
    stored === expected ? [] : [{ table, key, column, stored, expected }]

const drawsText = (draws: readonly CreditDebit[]): string =>
  draws.map(({ creditId, amount }) => `${creditId} ${amount}`).join(', ')

const zero = usdAttos(0n)

export const emptyAccount = ({ appId: app, userId: user }: ChainOwner): Account => ({
  appId: appId(app),
  userId: userId(user),
  aheadMs: 0,
  seq: 0n,
  balance: zero,
  granted: zero,
  topup: zero,
  consumed: zero,
  overage: zero,
  expired: zero,
  periodStart: new Date(0),
  periodEnd: new Date(0),
  periodCountsFrom: new Date(0),
  periodConsumed: zero,
  lent: zero,
  pending: zero,
  lendAfter: null,
  lateUntil: null,
  bookedThrough: new Date(0),
  head: null,
  credits: [],
  entries: [],
  periods: [],
})
