import { CollectionServiceService } from '../../proto/gen/ts-proto/tollgate/billing/v1/collections.ts'
import { WalletServiceService } from '../../proto/gen/ts-proto/tollgate/billing/v1/wallet.ts'
import type { Allowances } from '../balances/credit/allowances.ts'
import type { Ledger } from '../balances/ledger/ledger.ts'
import type { OwnerAccounts } from '../identity/platform-app/owner-accounts.ts'
import { type Pool, tx } from '../lib/sql.ts'
import { grpcService } from '../rpc/serve.ts'
import type { AppId } from '../shared/ids.ts'
import type { Shared } from '../shared/shared.ts'
import { markInvoiced } from './collection/invoices.ts'
import { createEndCollection } from './collection/voiding.ts'
import {
  type CollectionDeps,
  type CollectionPart,
  createCollectionPart,
} from './collection/module.ts'
import { createCollectionRpc } from './collection/rpc.ts'
import { createInvoicesPart } from './invoices/module.ts'
import { createOrdersPart } from './orders/module.ts'
import type { Paying } from './orders/orders.ts'
import type { PlansApi } from '../plans/module.ts'
import { type PaymentsDeps, createPaymentsPart } from './payments/module.ts'
import { findExternalId } from './payments/payer-store.ts'
import type { OwnerAccount, Payers } from './payments/payers.ts'
import type { Connections } from './processor/connections.ts'
import type { PaymentProcessor, ProcessorEvent } from './processor/port.ts'
import { createReportUnknown } from './reconciliation/unknown.ts'
import type { Ceilings } from './wallet/ceilings.ts'
import { createWalletRpc } from './wallet/rpc.ts'
import { createWallets } from './wallet/wallet.ts'

export interface PayingDeps {
  readonly plans: CollectionDeps['plans'] &
    Pick<PlansApi, 'quoteMove' | 'bookMove' | 'openPlanCheckout'>
  readonly ceilings: Ceilings
  /** Null if the deployment has none. */
  readonly processor: PaymentProcessor | null
  readonly connections: Connections
  readonly identity: Pick<PaymentsDeps, 'users'> & {
    readonly ownerAccounts: Pick<OwnerAccounts, 'ownerOf'>
  }
  readonly allowances: Allowances & Pick<PaymentsDeps, 'topUps'>
  readonly ledger: Ledger
  /** Returns the owner's account in the platform app; null before its first charge. */
  readonly findOwnerAccount: CollectionDeps['findOwner']
  readonly chargesAtOnce: CollectionDeps['chargesAtOnce']
}

/** Payments, invoices, collections and wallets. */
export function createPaying(shared: Shared, deps: PayingDeps) {
  const { pool, now } = shared
  const { processor, allowances } = deps
  const invoices = openInvoices(shared, deps)
  const { bookReturn, issue } = invoices
  const orders = openOrders(shared, deps, invoices)
  const collection = (): CollectionPart | null => collecting
  const settleCharge: PaymentsDeps['reportCharge'] = async (at, id) =>
    collecting?.attempts.report(at, id) ?? 'unknown'
  const payments = openPayments(shared, { ...deps, bookReturn, collection, orders, settleCharge })
  const { payers, customers } = payments
  const handlers = { plan: orders.charges }
  const { reconcileReturns } = payments
  const findOwner = deps.findOwnerAccount
  const charging = { ...deps, payers, issue, findOwner, handlers, reconcileReturns }
  const collecting =
    processor && customers && createCollectionPart(shared, { ...charging, processor, customers })
  const attempts = collecting?.attempts ?? null
  const paying = payingFrom({ ...payments, processor, attempts })
  const { quoteMove } = deps.plans
  const wallets = createWallets({ pool, payers, customers, allowances, now })
  const docsUrl = `${shared.config.publicUrl}/api/v1/docs`
  const { walletService } = createWalletRpc({ pool, payers, wallets, docsUrl })
  const wallet = grpcService(WalletServiceService, walletService)
  const collections = collectionsService(pool, { payers, collecting })
  return {
    settleCharge,
    reconcileReturns,
    receive: async (event: ProcessorEvent) => payments.events?.accept(event),
    recomputeInvoices: invoices.recompute,
    services: [...payments.services, ...invoices.services, wallet, collections],
    planOrders: orders.take({ quoteMove, payers, paying }),
    lifecycle: lifecycleOf(payments, collecting),
    /** Collects what is due by the clock of an app. Returns false if something may be left. */
    collect: async (app: AppId, end: number) => collecting?.worker.run(app, end) ?? true,
    upkeep: [...payments.upkeep, ...orders.upkeep, ...(collecting?.upkeep ?? [])],
  }
}

const openInvoices = (
  shared: Shared,
  { ledger, identity: { users }, findOwnerAccount, plans }: PayingDeps,
) =>
  createInvoicesPart(shared, {
    ledger,
    users,
    findOwnerAccount: (app) => findOwnerAccount(shared.pool, app),
    markInvoiced,
    endCollection: createEndCollection({ plans, now: shared.now }),
  })

const openOrders = (
  shared: Shared,
  { ledger, allowances: { topUps }, plans: { bookMove } }: PayingDeps,
  issuing: Pick<InvoicesPart, 'issue'>,
) => createOrdersPart(shared, { bookMove, issuing, ledger, topUps })

type InvoicesPart = ReturnType<typeof createInvoicesPart>

/** Returns what orders of plans use; null without a payment processor. */
const payingFrom = ({
  processor,
  customers,
  checkouts,
  settling,
  attempts,
}: { readonly [Part in keyof Paying]: Paying[Part] | null }): Paying | null =>
  processor && customers && checkouts && settling && attempts
    ? { processor, customers, checkouts, settling, attempts }
    : null

/** Opens payments, which call the collection only after it is created. */
function openPayments(
  shared: Shared,
  {
    processor,
    connections,
    identity,
    allowances,
    plans,
    bookReturn,
    collection,
    orders,
    settleCharge: reportCharge,
  }: PayingDeps & {
    readonly orders: Pick<ReturnType<typeof openOrders>, 'checkouts'>
    readonly bookReturn: PaymentsDeps['bookInvoiceReturn']
    readonly collection: () => CollectionPart | null
    readonly settleCharge: PaymentsDeps['reportCharge']
  },
) {
  return createPaymentsPart(shared, {
    processor,
    users: identity.users,
    topUps: allowances.topUps,
    plans: orders.checkouts,
    openPlanCheckout: plans.openPlanCheckout,
    requireAccount: connections.requireAccount,
    findOwnerAccount: createFindOwnerAccount(shared.pool, identity.ownerAccounts),
    refreshAccount: async (event) => {
      await connections.receive(event)
      return 'account read'
    },
    bookInvoiceReturn: bookReturn,
    reportUnknown: createReportUnknown(shared.now),
    onCardRead: async (user, card) => collection()?.onCardRead(user, card),
    reportCharge,
  })
}

function collectionsService(
  pool: Pool,
  { payers, collecting }: { readonly payers: Payers; readonly collecting: CollectionPart | null },
) {
  const collectNow = collecting?.collectNow ?? null
  const { collectionService } = createCollectionRpc({ pool, payers, collectNow })
  return grpcService(CollectionServiceService, collectionService)
}

interface Startable {
  readonly start: () => void
  readonly stop: () => Promise<unknown>
}

const lifecycleOf = (payments: Startable, collection: Startable | null) => ({
  start: () => {
    payments.start()
    collection?.start()
  },
  stop: async () => void (await Promise.all([payments.stop(), collection?.stop()])),
})

const createFindOwnerAccount =
  (pool: Pool, owners: Pick<OwnerAccounts, 'ownerOf'>) =>
  (app: AppId): Promise<OwnerAccount | null> =>
    tx(pool, async (db) => {
      const owner = (await owners.ownerOf(db, [app])).get(app)
      return owner ? { ...owner, externalUserId: await findExternalId(db, owner) } : null
    })
