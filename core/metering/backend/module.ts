import { OutboxServiceService } from '../../../proto/gen/ts-proto/tollgate/metering/v1/outbox.ts'
import { ReconciliationServiceService } from '../../../proto/gen/ts-proto/tollgate/metering/v1/reconciliation.ts'
import { createOutbox } from '../../shared/outbox/outbox.ts'
import type { Destination } from '../../shared/outbox/types.ts'
import type { Shared } from '../../shared/shared.ts'
import { createRequireMetering } from '../../rpc/guards.ts'
import { grpcService } from '../../rpc/serve.ts'
import { meters } from './catalog.ts'
import type { BackendConfig } from './config.ts'
import { createBackfill, createEmitter } from './emit.ts'
import type { FindSubscriber } from './subscribers.ts'
import { createOutboxRpc } from './outbox-rpc.ts'
import { createReconciliation } from './reconciliation.ts'
import { createReconciliationRpc } from './rpc.ts'
import { createBackend } from './service.ts'

export interface BackendOthers {
  readonly config: BackendConfig
  readonly findSubscriber: FindSubscriber
  /** Further destinations of the outbox. */
  readonly destinations?: readonly Destination[]
}

/**
 * Creates the metering backend and the outbox that feeds it. Comes before users and tickets, which
 * are sent to it.
 */
export function createBackendModule(
  shared: Shared,
  { config, findSubscriber, destinations = [] }: BackendOthers,
) {
  const { pool, log, metrics, now, stopping } = shared
  const backend = createBackend(config, { log, metrics, now, findSubscriber })
  const emitter = backend.destinations.length > 0 ? createEmitter() : undefined
  const outbox = createOutbox({
    pool,
    log,
    metrics,
    now,
    destinations: [...backend.destinations, ...destinations],
  })
  const reconciliation = createReconciliation({ pool, backend, log, metrics, now })
  const { reconciliationService } = createReconciliationRpc({ pool, reconciliation })

  function start(): void {
    backend.start()
    outbox.start()
    if (!emitter) return
    createBackfill({ pool, log, now })
      .run(stopping)
      .catch((error: unknown) =>
        log.warn(
          { err: error },
          'not all users were sent to the metering backend; the next start continues',
        ),
      )
  }

  return {
    api: {
      emitter,
      requireMetering: createRequireMetering(backend.requireAnswers),
      /** Like `requireMetering`, but also passes while a configured backend does not answer. */
      requireConfigured: createRequireMetering(async () => {
        if (backend.name === 'none') await backend.requireAnswers()
      }),
      requireAnswers: backend.requireAnswers,
      meters,
      isOpenMeter: backend.name === 'openmeter',
      comparison: emitter && reconciliation,
      plans: backend.plans,
    },
    services: [
      grpcService(OutboxServiceService, createOutboxRpc({ pool, now }).outboxService),
      grpcService(ReconciliationServiceService, reconciliationService),
    ],
    lifecycle: {
      start,
      stop: () => Promise.all([outbox.stop(), reconciliation.stop(), backend.stop()]),
      ready: async () => backend.ready(),
    },
    upkeep: [reconciliation.tend],
  }
}

export type BackendApi = ReturnType<typeof createBackendModule>['api']
