import { lateMs } from '../../shared/late-tickets.ts'
import type { Credit } from '../accounts/credits.ts'
import { raiseBetween } from '../accounts/terms.ts'
import { type Compare, type HeldSubscription, type ReplayFinding, comparer } from './facts.ts'
import { type Replayed, periodFindings } from './replay-periods.ts'

/** Returns the faults of credits, balance, periods and subscriptions after the last entry. */
export const closingFindings = (replayed: Replayed): ReplayFinding[] => [
  ...creditFindings(replayed),
  ...balanceFindings(replayed),
  ...replayed.facts.periods.flatMap((period, index) => periodFindings(replayed, period, index)),
  ...slotFindings(replayed.facts.subscriptions),
]

function creditFindings(replayed: Replayed): ReplayFinding[] {
  const { facts, opened, remaining } = replayed
  return [...facts.credits.values()].flatMap((credit) => {
    const compare = comparer('grants', { id: credit.id })
    const rest = opened.has(credit.id) ? (remaining.get(credit.id) ?? 0n) : null
    return [
      ...compare('remaining_attos', String(credit.remaining), rest === null ? null : String(rest)),
      ...endFindings(replayed, { credit, rest, compare }),
      ...givenFindings(replayed, credit, compare),
    ]
  })
}

/**
 * Included usage ends with its period. An amount given after the start of the period must equal
 * the raise by a newer version.
 */
function givenFindings(
  { facts, includedIn }: Replayed,
  credit: Credit,
  compare: Compare,
): ReplayFinding[] {
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
  const to = versions.find(({ createdAt }) => createdAt.getTime() === credit.effectiveAt.getTime())
  const amount = to && raiseBetween(versions, { from: period.terms.planVersion, to })
  return findings.concat(
    compare('amount_attos', String(credit.amount), amount === undefined ? null : String(amount)),
  )
}

/**
 * An entry records when a credit ended. Without an entry, nothing remained and the credit ended
 * when due.
 */
function endFindings(
  { expired }: Replayed,
  { credit, rest, compare }: { credit: Credit; rest: bigint | null; compare: Compare },
): ReplayFinding[] {
  const { expiredAt } = credit
  const end = expired.get(credit.id) ?? null
  if (end === null && expiredAt === null) return []
  if (end === null && rest === 0n && isDue(credit)) return []
  return compare('expired_at', expiredAt?.toISOString() ?? null, end?.toISOString() ?? null)
}

function balanceFindings({
  facts: { balance, periods },
  head,
  last,
  lastSeq,
  consumed,
}: Replayed): ReplayFinding[] {
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
