import { Gauge } from 'prom-client'
import type { Metrics } from '../../lib/metrics.ts'
import { quarantineReasons } from '../events/parse.ts'

interface Waiting {
  readonly reason: string
  readonly events: bigint
  readonly fee: bigint
}

/**
 * Gauges of undecided quarantined events, by reason. They keep their last value if a read fails.
 */
export function createQuarantineMetrics(
  registry: Metrics,
  waiting: () => Promise<readonly Waiting[]>,
): void {
  let reading: Promise<readonly Waiting[]> | null = null
  // One query serves both gauges of a scrape.
  const read = (): Promise<readonly Waiting[]> =>
    (reading ??= waiting().finally(() => {
      reading = null
    }))

  // Gauges are floats; the list of quarantined events has the exact sums.
  function gauge(name: string, help: string, value: (waiting: Waiting) => bigint): Gauge {
    return new Gauge({
      name,
      help,
      labelNames: ['reason'],
      registers: [registry],
      async collect() {
        const rows = await read().catch(() => null)
        if (rows === null) return
        this.reset()
        for (const reason of quarantineReasons) this.set({ reason }, 0)
        for (const row of rows) this.set({ reason: row.reason }, Number(value(row)))
      },
    })
  }

  gauge(
    'tollgate_metering_quarantine_open',
    'Events in quarantine without a decision',
    ({ events }) => events,
  )
  gauge(
    'tollgate_metering_quarantine_open_wei',
    'Readable fees of events in quarantine without a decision',
    ({ fee }) => fee,
  )
}
