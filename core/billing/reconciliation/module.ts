import { ProcessorReconciliationServiceService } from '../../../proto/gen/ts-proto/tollgate/billing/v1/reconciliation.ts'
import { grpcService } from '../../rpc/serve.ts'
import type { Shared } from '../../shared/shared.ts'
import type { PaymentProcessor } from '../processor/port.ts'
import { type ComparisonDeps, createComparison } from './comparison.ts'
import { createReconciliation } from './reconciliation.ts'
import { createReconciliationRpc } from './rpc.ts'
import { createWorker } from './worker.ts'

/** Compares the payment processor with our payments. `processor` is null if there is none. */
export function createReconciliationPart(
  shared: Shared,
  {
    processor,
    settleCharge,
    reconcileReturns,
  }: Pick<ComparisonDeps, 'settleCharge' | 'reconcileReturns'> & {
    readonly processor: PaymentProcessor | null
  },
) {
  const reconciliation =
    processor === null
      ? null
      : createReconciliation({
          ...shared,
          processor,
          comparison: createComparison({ ...shared, processor, settleCharge, reconcileReturns }),
        })
  const worker =
    processor === null || reconciliation === null
      ? null
      : createWorker({ ...shared, processor, reconciliation })
  const { processorReconciliationService } = createReconciliationRpc({ ...shared, reconciliation })
  return {
    reconciliation,
    services: [grpcService(ProcessorReconciliationServiceService, processorReconciliationService)],
    start: () => worker?.start(),
    stop: async () => worker?.stop(),
  }
}
