import { BooksServiceService } from '../../proto/gen/ts-proto/tollgate/books/v1/books.ts'
import { CheckServiceService } from '../../proto/gen/ts-proto/tollgate/books/v1/checks.ts'
import { ReceiptServiceService } from '../../proto/gen/ts-proto/tollgate/books/v1/receipts.ts'
import type { RecomputeInvoices } from '../billing/invoices/recompute.ts'
import type { Ledger } from '../balances/ledger/ledger.ts'
import type { MeteringApi } from '../metering/module.ts'
import type { ReadRates } from '../metering/rating/port.ts'
import type { PriceReads } from '../plans/prices/chain.ts'
import type { UsdAttos } from '../lib/money.ts'
import type { Shared } from '../shared/shared.ts'
import type { RequireMetering } from '../rpc/guards.ts'
import { grpcService } from '../rpc/serve.ts'
import type { TokensApi } from '../tokens/module.ts'
import type { UsageApi } from '../usage/module.ts'
import type { BooksConfig } from './config.ts'
import type { CheckParts } from './checks/runs.ts'
import { createReceiptRpc } from './receipts/rpc.ts'
import { createReceipts } from './receipts/receipts.ts'
import type { SalesDeps } from './verify/sales.ts'
import { createBooks } from './service.ts'

export interface BooksOthers {
  readonly config: BooksConfig
  readonly metering: MeteringApi
  readonly ledger: Ledger
  readonly plans: { readonly readRates: ReadRates; readonly prices: PriceReads }
  readonly cuts: { readonly list: SalesDeps['listCuts'] }
  readonly usage: UsageApi
  readonly tokens: Pick<TokensApi, 'signStatement'>
  readonly requireMetering: RequireMetering
  readonly recomputeInvoices: RecomputeInvoices
  readonly minimumCharge: UsdAttos
  readonly backend: CheckParts['backend']
  readonly processorReconciliation: CheckParts['processorReconciliation']
}

/**
 * Operator functions: verify and rebuild the books; export, import and archive tickets. Also issues
 * receipts.
 */
export function createBooksModule(
  { pool, log, now, clocks, metrics, invalidations, config: { issuer } }: Shared,
  {
    metering: { manualIngest, signingLimits, conflictOnPoison, ticketRecords },
    ledger,
    plans,
    cuts,
    usage,
    tokens: { signStatement },
    requireMetering,
    ...others
  }: BooksOthers,
) {
  const shared = { pool, now, log, metrics, invalidations, issuer, signStatement }
  const books = createBooks({
    ...shared,
    ...others,
    manualIngest,
    signingLimits,
    conflictOnPoison,
    ticketRecords,
    rebuildBalance: ledger.rebuildBalance,
    createReplay: ledger.createReplay,
    ...plans,
    listCuts: cuts.list,
    listMoves: async (db, appId) => (await clocks.moves(db, [{ appId }])).get(appId) ?? [],
  })
  const issuing = { ...shared, ...usage, requireMetering }
  const { receiptService } = createReceiptRpc({ ...issuing, receipts: createReceipts(issuing) })
  return {
    api: {},
    services: [
      grpcService(BooksServiceService, books.booksService),
      grpcService(CheckServiceService, books.checkService),
      grpcService(ReceiptServiceService, receiptService),
    ],
    lifecycle: { prepare: books.prepare, start: books.start, stop: books.stop },
  }
}
