import { createMetrics } from '../../../../core/lib/metrics.ts'
import { silentLog } from '../../../../core/lib/log.ts'
import { usdAttos, wei } from '../../../../core/lib/money.ts'
import type { Pool } from '../../../../core/lib/sql.ts'
import type { Now } from '../../../../core/lib/time.ts'
import type { EmittedTicket } from '../../../../core/metering/backend/emit.ts'
import { createOpenMeter } from '../../../../core/metering/backend/openmeter/openmeter.ts'
import type { Subject } from '../../../../core/metering/batch/subjects.ts'
import { createOutbox } from '../../../../core/shared/outbox/outbox.ts'
import { until } from '../../support.ts'

export interface SenderOptions {
  readonly pool: Pool
  readonly now: Now
  readonly url: string
  readonly batchSize?: number
  readonly timeoutMs?: number
  readonly apiKey?: string
}

/** Starts a core's sender: the prepared backend, and an outbox that delivers to it. */
export async function startSender({
  pool,
  now,
  url,
  batchSize = 1_000,
  timeoutMs = 5_000,
  apiKey,
}: SenderOptions) {
  const metrics = createMetrics('test')
  const backend = createOpenMeter({
    config: { url, apiKey, timeoutMs, batchSize },
    log: silentLog(),
    metrics,
    now,
    findSubscriber: async () => null,
    backoff: { firstMs: 5, lastMs: 20 },
  })
  const outbox = createOutbox({
    pool,
    log: silentLog(),
    metrics,
    now,
    destinations: backend.destinations,
    idleMs: 10,
  })
  backend.start()
  const prepared = (): Promise<void> => until(() => backend.destinations.every((to) => to.ready()))
  return { backend, outbox, metrics, prepared }
}

/** Returns a ticket as ingest passes it on. */
export function ticketOf(
  subject: Subject & { clientId: string; externalUserId: string },
  of: {
    eventId: string
    signedAt?: string
    fee?: bigint
    cost?: bigint | null
    rateId: bigint
    pipeline?: string
  },
): EmittedTicket {
  const { clientId, externalUserId, appId, userId } = subject
  const cost = of.cost === undefined ? 1_500_000_000_000n : of.cost
  return {
    subject: { appId, userId },
    price:
      cost === null
        ? null
        : {
            rateId: of.rateId,
            cost: usdAttos(cost),
            retail: usdAttos(cost),
            platformFee: usdAttos(0n),
            termsId: null,
          },
    ticket: {
      eventId: of.eventId,
      clientId,
      externalUserId,
      signedAt: of.signedAt ?? '2026-09-14T10:15:30.123456Z',
      sessionId: 's',
      requestId: 'r',
      manifestId: '',
      pipeline: of.pipeline ?? 'live',
      modelId: '',
      fee: wei(of.fee ?? 500n),
      billableSecs: '1.5',
      pixels: '7',
    },
  }
}
