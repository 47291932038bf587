import { BooksServiceService } from '../../proto/gen/ts-proto/tollgate/books/v1/books.ts'
import type { MeteringApi } from '../metering/module.ts'
import type { Platform } from '../platform/platform.ts'
import { grpcService } from '../rpc/serve.ts'
import type { BooksConfig } from './config.ts'
import { createBooks } from './service.ts'

export interface BooksOthers {
  readonly config: BooksConfig
  readonly metering: MeteringApi
}

/** What operators do with the books: prove and repair them, move and archive tickets. */
export function createBooksModule(
  { pool, log, now, invalidations }: Platform,
  { config, metering: { door, refusingPoison } }: BooksOthers,
) {
  const books = createBooks({ pool, now, log, config, invalidations, door, refusingPoison })
  return {
    api: {},
    services: [grpcService(BooksServiceService, books.booksService)],
    lifecycle: { start: books.start, stop: books.stop },
  }
}
