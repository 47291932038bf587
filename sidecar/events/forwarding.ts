import type { IngestEventsResponse } from '../../proto/gen/ts-proto/tollgate/metering/v1/metering.ts'
import type { CoreClient } from '../core/client.ts'
import type { SidecarMetrics } from '../metrics.ts'
import type { EventSink } from './handler.ts'

const maxEnvelopes = 1_000
const maxBatchBytes = 2 * 1024 * 1024

export interface ForwardingDeps {
  readonly core: Pick<CoreClient, 'ingestEvents'>
  readonly metrics: Pick<SidecarMetrics, 'countEvents' | 'countFailure'>
}

/** The sink without a spool: events are stored when core has committed them. */
export function createForwarding({ core, metrics }: ForwardingDeps): EventSink {
  async function store(
    envelopes: readonly Buffer[],
    id: string,
  ): Promise<Record<keyof IngestEventsResponse, number>> {
    const counts = { tickets: 0, duplicates: 0, ignored: 0, quarantined: 0 }
    try {
      for (const batch of batchesOf(envelopes)) {
        const { tickets, duplicates, ignored, quarantined } = await core.ingestEvents(batch, id)
        counts.tickets += tickets
        counts.duplicates += duplicates
        counts.ignored += ignored
        counts.quarantined += quarantined
      }
    } catch (error) {
      metrics.countFailure('core')
      throw error
    }
    metrics.countEvents(envelopes.length)
    return counts
  }

  return { store, maxInFlight: 32 }
}

// Core accepts at most 1,000 envelopes, and gRPC 4 MiB, in one message.
function* batchesOf(envelopes: readonly Buffer[]): Generator<Buffer[]> {
  let batch: Buffer[] = []
  let bytes = 0
  for (const envelope of envelopes) {
    if (
      batch.length === maxEnvelopes ||
      (batch.length > 0 && bytes + envelope.length > maxBatchBytes)
    ) {
      yield batch
      batch = []
      bytes = 0
    }
    batch.push(envelope)
    bytes += envelope.length
  }
  if (batch.length > 0) yield batch
}
