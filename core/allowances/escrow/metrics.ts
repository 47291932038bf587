import { Counter, Gauge } from 'prom-client'
import type { Metrics } from '../../lib/metrics.ts'
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
  for (const end of ends) count.inc({ end }, 0)
  const ended = (sums: Partial<ReleaseSums>): void => {
    for (const end of ends) {
      usd.inc({ end }, usdOf(sums[end]?.amount ?? 0n))
      count.inc({ end }, sums[end]?.count ?? 0)
    }
  }
  return { ended }
}

const ends = ['released', 'lost', 'charged', 'orphaned'] as const

function moneyCounters(counter: (name: string, help: string) => Counter) {
  const sum = (name: string, help: string) => {
    const usd = counter(`tollgate_escrow_${name}_usd_total`, `${help}, in USD`)
    const count = counter(`tollgate_escrow_${name}_total`, `${help}, count`)
    return (amount: bigint, times = 1): void => {
      usd.inc(usdOf(amount))
      count.inc(times)
    }
  }
  return {
    lent: sum('lent', 'Lent to sidecars'),
    used: sum('used', 'Bounds of calls that leases paid, as reported'),
    returned: sum('returned', 'Returned unused by sidecars'),
    reserved: sum('reserved', 'Reserved for single calls'),
    late: sum('late_reported', 'Bounds of calls that were reported after the end of their lease'),
    recalled: counter('tollgate_escrow_recalled_total', 'Users whose leases were recalled'),
  }
}

export type EscrowMeters = ReturnType<typeof createEscrowMetrics>

const usdOf = (amount: bigint): number => Number(amount) / 1e18
