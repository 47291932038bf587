import type { UsdAttos } from '../../lib/money.ts'
import type { EnteredPeriod } from '../accounts/account.ts'
import type { Credit } from '../accounts/credits.ts'
import {
  type PlanVersion,
  type Slot,
  type Terms,
  termsAt,
  versionsByPlan,
  withheldFrom,
} from '../accounts/terms.ts'
import { type AccountFacts, type Compare, type ReplayFinding, comparer } from './facts.ts'

/** Compares stored periods and their included usage with a replay of all entries. */

/** A replay after the last entry. */
export interface Replayed {
  readonly facts: AccountFacts
  /** Remaining amounts of the credits that are left, by id. */
  readonly remaining: ReadonlyMap<string, UsdAttos>
  /** Number of the entry that gave each credit, by credit id. */
  readonly opened: ReadonlyMap<string, bigint>
  /** When an entry expired a credit, by credit id. */
  readonly expired: ReadonlyMap<string, Date>
  readonly includedIn: ReadonlyMap<string, IncludedUse>
  readonly head: string | null
  readonly last: Date
  readonly lastSeq: bigint
  /** Consumption of the running period. */
  readonly consumed: bigint
}

/** The period in which included usage was given, and when it ends. */
export interface IncludedUse {
  readonly period: EnteredPeriod
  readonly end: Date
}

// A plan's new version may be committed a moment after another core entered a period.
const slackMs = 60_000

export function periodFindings(
  replayed: Replayed,
  period: EnteredPeriod,
  index: number,
): ReplayFinding[] {
  const compare = comparer('periods', { starts_at: period.start.toISOString() })
  const expected = expectedTerms(replayed.facts, period)
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
    ...withheldFindings(replayed.facts, period, { expected, compare }),
    ...priceFindings(replayed.facts, period, { expected, compare }),
    ...includedFindings(replayed, period, compare),
  ]
}

function withheldFindings(
  facts: AccountFacts,
  { terms: { withheldAttos }, start }: EnteredPeriod,
  { expected, compare }: { expected: Terms; compare: Compare },
): ReplayFinding[] {
  const earlier = facts.periods.filter((one) => one.start < start && isFree(facts, one.terms))
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

/** The first period of a subscription may cost nothing: an operator's change is settled by hand. */
function priceFindings(
  { subscriptions }: AccountFacts,
  { start, terms: { priceAttos } }: EnteredPeriod,
  { expected, compare }: { expected: Terms; compare: Compare },
): ReplayFinding[] {
  const isFirst = subscriptions.some(({ createdAt }) => createdAt.getTime() === start.getTime())
  if (priceAttos === null || (isFirst && priceAttos === 0n)) return []
  return compare('price_attos', String(priceAttos), String(expected.priceAttos))
}

const isFree = (
  { versions }: AccountFacts,
  { planId, planVersion }: EnteredPeriod['terms'],
): boolean =>
  versions.some(
    (one) => one.planId === planId && one.version === planVersion && one.isFree === true,
  )

/**
 * Computes a period's terms from the subscription that held the slot at its start. Returns null
 * if the subscription or the versions of its plans are missing.
 */
function expectedTerms(
  { subscriptions, versions }: AccountFacts,
  { start, enteredAt, terms }: EnteredPeriod,
): Terms | null {
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
function includedFindings(
  replayed: Replayed,
  period: EnteredPeriod,
  compare: Compare,
): ReplayFinding[] {
  const includedAttos = givenIn(period)
  const credit = creditFrom(replayed, period)
  if (includedAttos === 0n)
    return credit && isRaise(replayed.facts, credit, period)
      ? []
      : compare('credit', credit?.id ?? null, null)
  if (!credit) return compare('credit', null, String(includedAttos))
  return [
    ...compare(
      'after_seq',
      String(period.afterSeq),
      String((replayed.opened.get(credit.id) ?? 0n) - 1n),
    ),
    ...compare('included_attos', String(includedAttos), String(credit.amount)),
    ...compare('entered_at', period.enteredAt.toISOString(), credit.createdAt.toISOString()),
  ]
}

/**
 * Returns the included usage from the start of a period; there is one at most for each instant
 * (`grants_included_once`). Ignores a raise that was given in another period: its version may be
 * from the very millisecond in which this period began.
 */
function creditFrom({ facts, includedIn }: Replayed, period: EnteredPeriod): Credit | undefined {
  const credit = [...facts.credits.values()].find(
    (one) => one.kind === 'included' && one.effectiveAt.getTime() === period.countsFrom.getTime(),
  )
  const entered = credit && includedIn.get(credit.id)?.period
  return entered && entered !== period && isRaise(facts, credit, entered) ? undefined : credit
}

/** True for a raise by a new version, which takes effect when that version was created. */
const isRaise = (
  { versions }: AccountFacts,
  { effectiveAt }: Credit,
  { terms }: EnteredPeriod,
): boolean =>
  versions.some(
    ({ planId, version, createdAt }) =>
      planId === terms.planId &&
      version > terms.planVersion &&
      createdAt.getTime() === effectiveAt.getTime(),
  )

const givenIn = ({ terms: { includedAttos, withheldAttos } }: EnteredPeriod): bigint =>
  includedAttos - withheldAttos

const knowsPlans = (versions: readonly PlanVersion[], { planId, next }: Slot): boolean =>
  [planId, next?.planId ?? planId].every((id) => versions.some((version) => version.planId === id))
