import { BooksServiceService } from '../../proto/gen/ts-proto/tollgate/books/v1/books.ts'
import type { Ledger } from '../allowances/ledger.ts'
import type { MeteringApi } from '../metering/module.ts'
import type { ReadRates } from '../metering/rating/port.ts'
import type { Platform } from '../platform/platform.ts'
import { grpcService } from '../rpc/serve.ts'
import type { BooksConfig } from './config.ts'
import type { SalesDeps } from './verify/sales.ts'
import { createBooks } from './service.ts'

export interface BooksOthers {
  readonly config: BooksConfig
  readonly metering: MeteringApi
  readonly ledger: Ledger
  readonly plans: { readonly readRates: ReadRates }
  readonly cuts: { readonly list: SalesDeps['listCuts'] }
}

/** What operators do with the books: verify and rebuild them, export, import and archive tickets. */
export function createBooksModule(
  { pool, log, now, metrics, invalidations }: Platform,
  {
    config,
    metering: { manualIngest, signingLimits, conflictOnPoison, ticketRecords },
    ledger,
    plans,
    cuts,
  }: BooksOthers,
) {
  const books = createBooks({
    pool,
    now,
    log,
    metrics,
    config,
    invalidations,
    manualIngest,
    signingLimits,
    conflictOnPoison,
    ticketRecords,
    rebuildBalance: ledger.rebuildBalance,
    createReplay: ledger.createReplay,
    readRates: plans.readRates,
    listCuts: cuts.list,
  })
  return {
    api: {},
    services: [grpcService(BooksServiceService, books.booksService)],
    lifecycle: { start: books.start, stop: books.stop },
  }
}
