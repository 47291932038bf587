import { credentials } from '@grpc/grpc-js'
import {
  AccountServiceClient, type CreateAccountRequest, type StartPasswordResetRequest,
} from '../proto/gen/ts-proto/tollgate/identity/v1/accounts.ts'
import {
  AppServiceClient, CallerServiceClient, type CheckCallerRequest, type CreateAppRequest, type ListAppsRequest,
} from '../proto/gen/ts-proto/tollgate/identity/v1/identity.ts'
import { type GetLossReportRequest, LossServiceClient } from '../proto/gen/ts-proto/tollgate/metering/v1/loss.ts'
import { MeteringServiceClient, type RecordRateRequest } from '../proto/gen/ts-proto/tollgate/metering/v1/metering.ts'
import {
  type RotateSigningKeysRequest, TokenServiceClient,
} from '../proto/gen/ts-proto/tollgate/tokens/v1/tokens.ts'
import { serviceTokenHeader, unary } from '../core/lib/grpc.ts'

const deadlineMs = 10_000

/** An operator's connection to a running core: proves itself with the service token. Close it when done. */
export function connectCore({ target, token }: { target: string; token: string }) {
  const apps = new AppServiceClient(target, credentials.createInsecure())
  const callers = new CallerServiceClient(target, credentials.createInsecure())
  const accounts = new AccountServiceClient(target, credentials.createInsecure())
  const metering = new MeteringServiceClient(target, credentials.createInsecure())
  const losses = new LossServiceClient(target, credentials.createInsecure())
  const tokens = new TokenServiceClient(target, credentials.createInsecure())
  const operator = { deadlineMs, headers: { [serviceTokenHeader]: token } }

  return {
    createApp: (request: CreateAppRequest) => unary(apps.createApp.bind(apps))(request, operator),
    listApps: (request: ListAppsRequest) => unary(apps.listApps.bind(apps))(request, operator),
    createAccount: (request: CreateAccountRequest) => unary(accounts.createAccount.bind(accounts))(request, operator),
    startPasswordReset: (request: StartPasswordResetRequest) =>
      unary(accounts.startPasswordReset.bind(accounts))(request, operator),
    checkCaller: (request: CheckCallerRequest, authorization: string) =>
      unary(callers.checkCaller.bind(callers))(request, { deadlineMs, headers: { ...operator.headers, authorization } }),
    recordRate: (request: RecordRateRequest) => unary(metering.recordRate.bind(metering))(request, operator),
    meteringStatus: () => unary(metering.getMeteringStatus.bind(metering))({}, operator),
    lossReport: (request: GetLossReportRequest) => unary(losses.getLossReport.bind(losses))(request, operator),
    rotateSigningKeys: (request: RotateSigningKeysRequest) => unary(tokens.rotateSigningKeys.bind(tokens))(request, operator),
    listSigningKeys: () => unary(tokens.listSigningKeys.bind(tokens))({}, operator),
    close: () => [losses, apps, accounts, callers, metering, tokens].forEach((client) => client.close()),
  }
}

export type CoreClient = ReturnType<typeof connectCore>

/** `Basic …` of a client's id and secret (RFC 7617). */
export const basic = (id: string, secret: string): string => `Basic ${Buffer.from(`${id}:${secret}`).toString('base64')}`
