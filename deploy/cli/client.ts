import { Metadata, type ServiceError, credentials } from '@grpc/grpc-js'
import {
  AllowanceServiceClient,
  type CreateAdjustmentRequest,
} from '../../proto/gen/ts-proto/tollgate/allowances/v1/allowances.ts'
import {
  type ArchiveMonthsRequest,
  BooksServiceClient,
  type ExportTicketsRequest,
  type ImportTicketsRequest,
  type RebuildBooksRequest,
  type VerifyBooksRequest,
} from '../../proto/gen/ts-proto/tollgate/books/v1/books.ts'
import {
  AccountServiceClient,
  type CreateAccountRequest,
  type StartPasswordResetRequest,
} from '../../proto/gen/ts-proto/tollgate/identity/v1/accounts.ts'
import {
  AppServiceClient,
  CallerServiceClient,
  type CheckCallerRequest,
  type CreateAppRequest,
  type ListAppsRequest,
} from '../../proto/gen/ts-proto/tollgate/identity/v1/identity.ts'
import {
  type GetLossReportRequest,
  LossServiceClient,
} from '../../proto/gen/ts-proto/tollgate/metering/v1/loss.ts'
import {
  MeteringServiceClient,
  type RecordRateRequest,
} from '../../proto/gen/ts-proto/tollgate/metering/v1/metering.ts'
import { OutboxServiceClient } from '../../proto/gen/ts-proto/tollgate/metering/v1/outbox.ts'
import {
  type ReconcileRequest,
  type ReconcileResponse,
  ReconciliationServiceClient,
} from '../../proto/gen/ts-proto/tollgate/metering/v1/reconciliation.ts'
import {
  type AttributeQuarantinedRequest,
  type DiscardQuarantinedRequest,
  type GetQuarantinedRequest,
  type ListQuarantinedRequest,
  QuarantineServiceClient,
  type RedriveQuarantinedRequest,
} from '../../proto/gen/ts-proto/tollgate/metering/v1/quarantine.ts'
import {
  type RotateSigningKeysRequest,
  TokenServiceClient,
} from '../../proto/gen/ts-proto/tollgate/tokens/v1/tokens.ts'
import { fromServiceError, serviceTokenHeader, streaming, unary } from '../../core/lib/grpc.ts'

const deadlineMs = 10_000
/** What goes through all of the books takes as long as it takes. */
const dayMs = 86_400_000
const reconcileDeadlineMs = 3_600_000
const chunkMs = 60_000
const messageMaxBytes = 16 * 1024 * 1024

/** An operator's connection to a running core: proves itself with the service token. Close it when done. */
export function connectCore({ target, token }: { target: string; token: string }) {
  const apps = new AppServiceClient(target, credentials.createInsecure())
  const callers = new CallerServiceClient(target, credentials.createInsecure())
  const accounts = new AccountServiceClient(target, credentials.createInsecure())
  const metering = new MeteringServiceClient(target, credentials.createInsecure())
  const outbox = new OutboxServiceClient(target, credentials.createInsecure())
  const reconciliation = new ReconciliationServiceClient(target, credentials.createInsecure())
  const losses = new LossServiceClient(target, credentials.createInsecure())
  const tokens = new TokenServiceClient(target, credentials.createInsecure())
  const books = new BooksServiceClient(target, credentials.createInsecure(), {
    'grpc.max_receive_message_length': messageMaxBytes,
  })
  const quarantine = new QuarantineServiceClient(target, credentials.createInsecure())
  const allowances = new AllowanceServiceClient(target, credentials.createInsecure())
  const operator = { deadlineMs, headers: { [serviceTokenHeader]: token } }

  return {
    createApp: (request: CreateAppRequest) => unary(apps.createApp.bind(apps))(request, operator),
    listApps: (request: ListAppsRequest) => unary(apps.listApps.bind(apps))(request, operator),
    createAccount: (request: CreateAccountRequest) =>
      unary(accounts.createAccount.bind(accounts))(request, operator),
    startPasswordReset: (request: StartPasswordResetRequest) =>
      unary(accounts.startPasswordReset.bind(accounts))(request, operator),
    checkCaller: (request: CheckCallerRequest, authorization: string) =>
      unary(callers.checkCaller.bind(callers))(request, {
        deadlineMs,
        headers: { ...operator.headers, authorization },
      }),
    recordRate: (request: RecordRateRequest) =>
      unary(metering.recordRate.bind(metering))(request, operator),
    meteringStatus: () => unary(metering.getMeteringStatus.bind(metering))({}, operator),
    getOutbox: () => unary(outbox.getOutbox.bind(outbox))({}, operator),
    retryOutbox: () => unary(outbox.retryOutbox.bind(outbox))({}, operator),
    reconcile: (request: ReconcileRequest, onDay: (day: ReconcileResponse) => void) => {
      const metadata = new Metadata()
      metadata.set(serviceTokenHeader, token)
      const { promise, resolve, reject } = Promise.withResolvers<void>()
      const stream = reconciliation.reconcile(request, metadata, {
        deadline: Date.now() + reconcileDeadlineMs,
      })
      stream.on('data', onDay)
      stream.on('error', (error: ServiceError) => reject(fromServiceError(error)))
      stream.on('end', resolve)
      return promise
    },
    lossReport: (request: GetLossReportRequest) =>
      unary(losses.getLossReport.bind(losses))(request, operator),
    rotateSigningKeys: (request: RotateSigningKeysRequest) =>
      unary(tokens.rotateSigningKeys.bind(tokens))(request, operator),
    listSigningKeys: () => unary(tokens.listSigningKeys.bind(tokens))({}, operator),
    verifyBooks: (request: VerifyBooksRequest) =>
      streaming(books.verifyBooks.bind(books))(request, { ...operator, deadlineMs: dayMs }),
    rebuildBooks: (request: RebuildBooksRequest) =>
      streaming(books.rebuildBooks.bind(books))(request, { ...operator, deadlineMs: dayMs }),
    listQuarantined: (request: ListQuarantinedRequest) =>
      unary(quarantine.listQuarantined.bind(quarantine))(request, operator),
    getQuarantined: (request: GetQuarantinedRequest) =>
      unary(quarantine.getQuarantined.bind(quarantine))(request, operator),
    attributeQuarantined: (request: AttributeQuarantinedRequest) =>
      unary(quarantine.attributeQuarantined.bind(quarantine))(request, operator),
    redriveQuarantined: (request: RedriveQuarantinedRequest) =>
      unary(quarantine.redriveQuarantined.bind(quarantine))(request, operator),
    discardQuarantined: (request: DiscardQuarantinedRequest) =>
      unary(quarantine.discardQuarantined.bind(quarantine))(request, operator),
    createAdjustment: (request: CreateAdjustmentRequest) =>
      unary(allowances.createAdjustment.bind(allowances))(request, operator),
    archiveMonths: (request: ArchiveMonthsRequest) =>
      streaming(books.archiveMonths.bind(books))(request, { ...operator, deadlineMs: dayMs }),
    exportTickets: (request: ExportTicketsRequest) =>
      unary(books.exportTickets.bind(books))(request, { ...operator, deadlineMs: chunkMs }),
    importTickets: (request: ImportTicketsRequest) =>
      unary(books.importTickets.bind(books))(request, { ...operator, deadlineMs: chunkMs }),
    close: () =>
      [
        allowances,
        quarantine,
        books,
        apps,
        accounts,
        callers,
        metering,
        outbox,
        reconciliation,
        losses,
        tokens,
      ].forEach((client) => client.close()),
  }
}

export type CoreClient = ReturnType<typeof connectCore>

/** `Basic …` of a client's id and secret (RFC 7617). */
export const basic = (id: string, secret: string): string =>
  `Basic ${Buffer.from(`${id}:${secret}`).toString('base64')}`
