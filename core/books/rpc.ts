import type * as pb from '../../proto/gen/ts-proto/tollgate/books/v1/books.ts'
import { operator, operatorWrite } from '../rpc/guards.ts'
import { type Handlers, rpc, streamRpc } from '../rpc/serve.ts'
import type { Archive } from './transfer/archive.ts'
import type { TicketExport } from './transfer/export.ts'
import type { TicketImport } from './transfer/import.ts'
import type { BooksHead, Seal } from './seal/seal.ts'
import type { Rebuild, RebuildProgress } from './rebuild.ts'
import type { Difference } from './types.ts'
import type { Progress, Verify } from './verify/verify.ts'

export interface BooksRpcDeps {
  readonly verify: Verify
  readonly rebuild: Rebuild
  readonly seal: Seal
  readonly tickets: TicketExport & TicketImport
  readonly archive: Archive
}

// A page of 8 MiB, plus framing.
const messageMaxBytes = 9 * 1024 * 1024

export function createBooksRpc({ verify, rebuild, seal, tickets, archive }: BooksRpcDeps) {
  const booksService: Handlers<pb.BooksServiceServer> = {
    verifyBooks: streamRpc(
      operator(),
      async (
        request: pb.VerifyBooksRequest,
        emit: (message: pb.VerifyBooksResponse) => void,
        { signal },
      ) => {
        const emitAs =
          (kind: string) =>
          (progress: Progress, difference?: Difference): void =>
            emit({ kind, ...progress, difference: difference && toDifference(difference) })
        await verify.verify({
          clientId: request.clientId,
          signal,
          listener: {
            progress: emitAs('progress'),
            difference: emitAs('difference'),
            done: emitAs('done'),
          },
        })
      },
    ),

    sealBooks: rpc(operator(), async ({ clientId }: pb.SealBooksRequest) => ({
      heads: (await seal.seal(clientId, new AbortController().signal)).map(toHead),
    })),

    rebuildBooks: streamRpc(
      operatorWrite(),
      async (
        request: pb.RebuildBooksRequest,
        emit: (message: pb.RebuildBooksResponse) => void,
        { signal },
      ) => {
        await rebuild.rebuild({
          clientId: request.clientId,
          dryRun: request.dryRun,
          signal,
          report: (kind, progress) => emit(toRebuilt(kind, progress)),
        })
      },
    ),

    exportTickets: rpc(operator(), async (request: pb.ExportTicketsRequest) =>
      tickets.exportPage(request),
    ),

    archiveMonths: streamRpc(
      operatorWrite(),
      async (
        request: pb.ArchiveMonthsRequest,
        emit: (message: pb.ArchiveMonthsResponse) => void,
        { signal },
      ) =>
        archive.run({
          dryRun: request.dryRun,
          signal,
          report: (step) => emit({ ...step, tickets: String(step.tickets) }),
        }),
    ),

    importTickets: rpc(
      operatorWrite('repeated'),
      async (request: pb.ImportTicketsRequest) => {
        const imported = await tickets.importLines(request)
        return { ...imported, conflictingEventIds: [...imported.conflictingEventIds] }
      },
      { messageMaxBytes },
    ),
  }
  return { booksService }
}

const toDifference = ({
  check,
  userId,
  externalUserId,
  row,
  column,
  stored,
  expected,
  by,
}: Difference): pb.BookDifference => ({
  check,
  endUserId: userId ?? undefined,
  externalUserId: externalUserId ?? undefined,
  row,
  column,
  stored: stored ?? undefined,
  expected: expected ?? undefined,
  by: by ?? undefined,
})

const toHead = (head: BooksHead): pb.BooksHead => ({
  clientId: head.clientId,
  number: String(head.number),
  createdAt: head.createdAt.toISOString(),
  users: String(head.users),
  entries: String(head.entries),
  root: head.root,
  head: head.head,
})

const toRebuilt = (
  kind: string,
  { clientId, usersDone, usersTotal, rows }: RebuildProgress,
): pb.RebuildBooksResponse => ({
  kind,
  clientId,
  usersDone,
  usersTotal,
  usageHourly: rows.usage_hourly,
  ticketSessions: rows.ticket_sessions,
  balances: rows.balances,
})
