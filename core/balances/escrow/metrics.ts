import { Counter, Gauge } from 'prom-client'
import { type Metrics, startAtZero } from '../../lib/metrics.ts'
import type { ReserveAnswer } from './granting/reserve.ts'
import type { ReleaseSums } from './release.ts'

/** Held money of all users. */
export interface HeldMoney {
  readonly lent: bigint
  /** The part of `lent` under leases that have ended. */
  readonly orphaned: bigint
  readonly pending: bigint
}

/**
 * Figures that are read when the metrics are scraped. If a read fails, the figure stays as it was.
 */
export interface EscrowFigures {
  readonly held: () => Promise<HeldMoney>
  readonly secondsBehind: () => Promise<number>
}

/** Metrics of lending, holding and releasing. They are floats; no label identifies a tenant. */
export function createEscrowMetrics(registry: Metrics, figures: EscrowFigures) {
  const registers = [registry]
  const counter = (name: string, help: string): Counter => new Counter({ name, help, registers })
  const refused = new Counter({
    name: 'tollgate_escrow_refused_total',
    help: 'Reservations that were refused, by reason',
    labelNames: ['reason'],
    registers,
  })
  startAtZero(refused, { reason: refusalReasons })
  const held = new Gauge({
    name: 'tollgate_escrow_held_usd',
    help: 'Held money of users: lent to sidecars, the orphaned part of it, or pending until the ticket arrives',
    labelNames: ['kind'],
    registers,
    collect: () =>
      figures.held().then(
        ({ lent, orphaned, pending }) => {
          held.set({ kind: 'lent' }, usdOf(lent))
          held.set({ kind: 'orphaned' }, usdOf(orphaned))
          held.set({ kind: 'pending' }, usdOf(pending))
        },
        () => {},
      ),
  })
  const behind: Gauge = new Gauge({
    name: 'tollgate_escrow_stream_behind_seconds',
    help: 'Longest time for which a sidecar has allowed calls without a booked event',
    registers,
    collect: () =>
      figures.secondsBehind().then(
        (seconds) => behind.set(seconds),
        () => {},
      ),
  })
  return {
    ...moneyCounters(counter),
    ...endCounters(registry),
    refused: (reason: string) => refused.inc({ reason }),
  }
}

function endCounters(registry: Metrics) {
  const options = { labelNames: ['end'], registers: [registry] }
  const usd = new Counter({
    ...options,
    name: 'tollgate_escrow_ended_usd_total',
    help: 'Held money whose tickets did not arrive, by the end of its hold, in USD',
  })
  const count = new Counter({
    ...options,
    name: 'tollgate_escrow_ended_total',
    help: 'Calls whose tickets did not arrive, and leases that were not returned, by their end',
  })
  startAtZero(usd, { end: ends })
  startAtZero(count, { end: ends })
  const ended = (sums: Partial<ReleaseSums>): void => {
    for (const end of ends) {
      usd.inc({ end }, usdOf(sums[end]?.amount ?? 0n))
      count.inc({ end }, sums[end]?.count ?? 0)
    }
  }
  return { ended }
}

/** Words of ReserveAnswer's refusals, and of calls without a user. */
const refusalReasons = [
  'insufficient_balance',
  'no_payment_method',
  'debt_ceiling_reached',
  'owner_debt_ceiling_reached',
  'user_inactive',
  'limit_exceeded',
  'price_changed',
  'not_owner',
  'invalid_identity',
] as const satisfies readonly (NonNullable<ReserveAnswer['refusal']> | 'invalid_identity')[]

const ends = ['released', 'lost', 'charged', 'orphaned'] as const

function moneyCounters(counter: (name: string, help: string) => Counter) {
  const sum = (usdName: string, countName: string, help: string) => {
    const usd = counter(usdName, `${help}, in USD`)
    const count = counter(countName, `${help}, count`)
    return (amount: bigint, times = 1): void => {
      usd.inc(usdOf(amount))
      count.inc(times)
    }
  }
  return {
    lent: sum('tollgate_escrow_lent_usd_total', 'tollgate_escrow_lent_total', 'Lent to sidecars'),
    used: sum(
      'tollgate_escrow_used_usd_total',
      'tollgate_escrow_used_total',
      'Bounds of calls that leases paid, as reported',
    ),
    returned: sum(
      'tollgate_escrow_returned_usd_total',
      'tollgate_escrow_returned_total',
      'Returned unused by sidecars',
    ),
    reserved: sum(
      'tollgate_escrow_reserved_usd_total',
      'tollgate_escrow_reserved_total',
      'Reserved for single calls',
    ),
    late: sum(
      'tollgate_escrow_late_reported_usd_total',
      'tollgate_escrow_late_reported_total',
      'Bounds of calls that were reported after the end of their lease',
    ),
    recalled: counter('tollgate_escrow_recalled_total', 'Users whose leases were recalled'),
  }
}

export type EscrowMeters = ReturnType<typeof createEscrowMetrics>

const usdOf = (amount: bigint): number => Number(amount) / 1e18
