import { Gauge } from 'prom-client'
import type { Metrics } from '../../lib/metrics.ts'

interface Waiting {
  readonly reason: string
  readonly events: bigint
  readonly fee: bigint
}

/** What waits in quarantine for a decision, read when somebody looks; the figures stay as they were when that fails. */
export function createQuarantineMetrics(
  registry: Metrics,
  waiting: () => Promise<readonly Waiting[]>,
): void {
  let looking: Promise<readonly Waiting[]> | null = null
  // Both figures come from one look.
  const look = (): Promise<readonly Waiting[]> =>
    (looking ??= waiting().finally(() => {
      looking = null
    }))

  // A gauge is a float; the exact sums are in the list.
  function gauge(name: string, help: string, value: (of: Waiting) => bigint): Gauge {
    return new Gauge({
      name,
      help,
      labelNames: ['reason'],
      registers: [registry],
      async collect() {
        const rows = await look().catch(() => null)
        if (rows === null) return
        this.reset()
        for (const row of rows) this.set({ reason: row.reason }, Number(value(row)))
      },
    })
  }

  gauge(
    'metering_quarantine_open',
    'Events in quarantine that nobody has decided about',
    ({ events }) => events,
  )
  gauge('metering_quarantine_open_wei', 'Their fees, as far as they can be read', ({ fee }) => fee)
}
