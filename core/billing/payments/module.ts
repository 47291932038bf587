import { PaymentServiceService } from '../../../proto/gen/ts-proto/tollgate/billing/v1/payments.ts'
import type { TopUps } from '../../balances/credit/top-ups.ts'
import { grpcService } from '../../rpc/serve.ts'
import type { UserKey } from '../../shared/ids.ts'
import type { Shared } from '../../shared/shared.ts'
import type { Card, PaymentProcessor, ProcessorAccount, ProcessorEvent } from '../processor/port.ts'
import { createCheckouts } from './checkouts.ts'
import { createCustomers } from './customers.ts'
import { createProcessorEvents } from './events.ts'
import { type PayersDeps, createPayers } from './payers.ts'
import { type ReturnsDeps, createReturns } from './returns.ts'
import { type PaymentsRpcDeps, createPaymentsRpc } from './rpc.ts'
import { type PlanCheckouts, type SettlingDeps, createSettling } from './settling.ts'
import { createSweep } from './sweep.ts'

export interface PaymentsDeps extends Omit<PayersDeps, 'pool' | 'processor'> {
  /** Null without a payment processor. */
  readonly processor: PaymentProcessor | null
  readonly topUps: TopUps
  readonly plans: PlanCheckouts
  readonly openPlanCheckout: PaymentsRpcDeps['openPlanCheckout']
  /** Reads an app's account at the processor again. */
  readonly refreshAccount: (event: ProcessorEvent) => Promise<string>
  /** Books money that went back, of a payment that paid an invoice. */
  readonly bookInvoiceReturn: ReturnsDeps['bookInvoiceReturn']
  readonly reportUnknown: SettlingDeps['reportUnknown']
  readonly onCardRead: (user: UserKey, card: Card | null) => Promise<void>
  /** Settles a charge of a card on file. */
  readonly reportCharge: (at: ProcessorAccount, processorId: string) => Promise<string>
}

/** Checkouts, payments and their returns, and the processor's events. */
export function createPaymentsPart(shared: Shared, deps: PaymentsDeps) {
  const { pool } = shared
  const payers = createPayers({ ...deps, pool })
  const collecting = deps.processor === null ? null : collect(shared, deps, deps.processor)
  const { openPlanCheckout } = deps
  const { paymentService } = createPaymentsRpc({ pool, payers, collecting, openPlanCheckout })
  return {
    payers,
    customers: collecting?.customers ?? null,
    checkouts: collecting?.checkouts ?? null,
    settling: collecting?.settling ?? null,
    events: collecting?.events ?? null,
    reconcileReturns: async (at: ProcessorAccount, id: string): Promise<string> =>
      collecting?.returns.reconcile(at, id) ?? 'unknown',
    services: [grpcService(PaymentServiceService, paymentService)],
    start: () => collecting?.start(),
    stop: async () => collecting?.stop(),
    upkeep: collecting === null ? [] : collecting.upkeep,
  }
}

function collect(shared: Shared, deps: PaymentsDeps, processor: PaymentProcessor) {
  const { pool, now, log, metrics } = shared
  const { topUps, plans, bookInvoiceReturn, reportUnknown } = deps
  const { publicUrl } = shared.config
  const customers = createCustomers({ pool, processor, onCardRead: deps.onCardRead, now })
  const checkouts = createCheckouts({ ...shared, processor, customers, publicUrl })
  const returns = createReturns({ ...shared, processor, topUps, bookInvoiceReturn })
  const { reconcile: reconcileReturns } = returns
  const settles = { customers, topUps, plans, reconcileReturns, reportUnknown }
  const settling = createSettling({ ...shared, processor, ...settles })
  const sweep = createSweep({ pool, settling, log, metrics, now })

  async function handle(event: ProcessorEvent): Promise<string> {
    const { subject, at, objectId, payment } = event
    if (subject === 'checkout') return settling.settle(at, objectId)
    if (subject === 'payment') return reportPayment(at, objectId)
    if (subject === 'refund' || subject === 'dispute')
      return payment === null ? 'without a payment' : reportPayment(at, payment)
    if (subject === 'account') return deps.refreshAccount(event)
    if (subject === 'customer')
      return (await customers.refreshById(objectId, at)) ? 'card read' : 'unknown'
    return 'ignored'
  }

  async function reportPayment(at: ProcessorAccount, id: string): Promise<string> {
    const outcome = await returns.reconcile(at, id)
    return outcome === 'unknown' ? deps.reportCharge(at, id) : outcome
  }

  const events = createProcessorEvents({ ...shared, processor, handle })
  const upkeep = [returns.bookOpen, events.deleteOld]

  function start(): void {
    events.start()
    sweep.start()
  }

  const stop = (): Promise<unknown> => Promise.all([events.stop(), sweep.stop()])

  return { customers, checkouts, settling, returns, events, upkeep, start, stop }
}
