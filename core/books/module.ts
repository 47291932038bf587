import { BooksServiceService } from '../../proto/gen/ts-proto/tollgate/books/v1/books.ts'
import type { Ledger } from '../allowances/ledger.ts'
import type { MeteringApi } from '../metering/module.ts'
import type { Platform } from '../platform/platform.ts'
import { grpcService } from '../rpc/serve.ts'
import type { BooksConfig } from './config.ts'
import { createBooks } from './service.ts'

export interface BooksOthers {
  readonly config: BooksConfig
  readonly metering: MeteringApi
  readonly ledger: Ledger
}

/** What operators do with the books: verify and rebuild them, export, import and archive tickets. */
export function createBooksModule(
  { pool, log, now, metrics, invalidations }: Platform,
  {
    config,
    metering: { manualIngest, signingLimits, conflictOnPoison, ticketRecords },
    ledger,
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
  })
  return {
    api: {},
    services: [grpcService(BooksServiceService, books.booksService)],
    lifecycle: { start: books.start, stop: books.stop },
  }
}
