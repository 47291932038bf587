import type { Rpcs } from '../support.ts'

type Call = (rpcs: Rpcs, clientId: string) => Promise<unknown>

export interface Route {
  readonly name: string
  readonly guard: 'm2m' | 'm2m_basic'
  readonly scope?: string
  /** A malformed request that the caller may make, and one for a missing resource. */
  readonly malformed?: Call
  readonly missing?: Call
  readonly call: Call
}

export const credit = { amountUsdMicros: '1', source: 'manual' }
export const ada = 'ada'
export const nobody = 'nobody'

/** Every RPC that names an app, with the requirements of its guard. */
export const routes: readonly Route[] = [
  {
    name: 'UpsertUsers',
    guard: 'm2m',
    scope: 'users:write',
    call: (as, clientId) => as.upsertAmongOthers({ clientId, externalUserId: ada }),
    malformed: (as, clientId) => as.upsertAmongOthers({ clientId, externalUserId: '' }),
  },
  {
    name: 'CreateKeys',
    guard: 'm2m',
    scope: 'users:write',
    call: (as, clientId) => as.createKeyAmongOthers({ clientId, externalUserId: ada }),
    malformed: (as, clientId) => as.createKeyAmongOthers({ clientId }),
    missing: (as, clientId) => as.createKeyAmongOthers({ clientId, externalUserId: nobody }),
  },
  {
    name: 'CreateGrants',
    guard: 'm2m',
    scope: 'users:write',
    call: (as, clientId) => as.grantAmongOthers({ ...credit, clientId, externalUserId: ada }),
    malformed: (as, clientId) => as.grantAmongOthers({ ...credit, clientId, source: 'x' }),
    missing: (as, clientId) => as.grantAmongOthers({ ...credit, clientId, externalUserId: nobody }),
  },
  {
    name: 'GetBalances',
    guard: 'm2m_basic',
    call: (as, clientId) => as.balanceAmongOthers({ clientId, externalUserId: ada }),
    malformed: (as, clientId) => as.balanceAmongOthers({ clientId }),
    missing: (as, clientId) => as.balanceAmongOthers({ clientId, externalUserId: nobody }),
  },
  {
    name: 'ListUsers',
    guard: 'm2m',
    scope: 'users:read',
    call: (as, clientId) => as.listUsers({ clientId }),
    malformed: (as, clientId) => as.listUsers({ clientId, status: 'x' }),
  },
  {
    name: 'UpsertUser',
    guard: 'm2m',
    scope: 'users:write',
    call: (as, clientId) => as.upsertUser({ clientId, externalUserId: ada }),
    malformed: (as, clientId) => as.upsertUser({ clientId }),
  },
  {
    name: 'UpdateUser',
    guard: 'm2m',
    scope: 'users:write',
    call: (as, clientId) => as.updateUser({ clientId, externalUserId: ada }),
    malformed: (as, clientId) => as.updateUser({ clientId, externalUserId: nobody, status: 'x' }),
    missing: (as, clientId) => as.updateUser({ clientId, externalUserId: nobody }),
  },
  {
    name: 'DeactivateUser',
    guard: 'm2m',
    scope: 'users:write',
    call: (as, clientId) => as.deactivateUser({ clientId, externalUserId: ada }),
    malformed: (as, clientId) => as.deactivateUser({ clientId }),
    missing: (as, clientId) => as.deactivateUser({ clientId, externalUserId: nobody }),
  },
  {
    name: 'CreateKey',
    guard: 'm2m',
    scope: 'users:write',
    call: (as, clientId) => as.createKey({ clientId, externalUserId: ada }),
    malformed: (as, clientId) =>
      as.createKey({ clientId, externalUserId: nobody, idempotencyKey: ' ' }),
    missing: (as, clientId) => as.createKey({ clientId, externalUserId: nobody }),
  },
  {
    name: 'ListKeys',
    guard: 'm2m',
    scope: 'users:write',
    call: (as, clientId) => as.listKeys({ clientId, externalUserId: ada }),
    malformed: (as, clientId) => as.listKeys({ clientId, externalUserId: nobody, limit: 2000 }),
    missing: (as, clientId) => as.listKeys({ clientId, externalUserId: nobody }),
  },
  {
    name: 'RevokeKey',
    guard: 'm2m',
    scope: 'users:write',
    call: (as, clientId) => as.revokeKey({ clientId, externalUserId: ada, keyId: 'x' }),
    malformed: (as, clientId) => as.revokeKey({ clientId, keyId: 'x' }),
    missing: (as, clientId) => as.revokeKey({ clientId, externalUserId: ada, keyId: 'x' }),
  },
  {
    name: 'MintUserToken',
    guard: 'm2m',
    scope: 'users:token',
    call: (as, clientId) => as.mintUserToken({ clientId, externalUserId: ada }),
    malformed: (as, clientId) => as.mintUserToken({ clientId, externalUserId: nobody, scope: ' ' }),
    missing: (as, clientId) => as.mintUserToken({ clientId, externalUserId: nobody }),
  },
  {
    name: 'MintUserTokens',
    guard: 'm2m',
    scope: 'users:token',
    call: (as, clientId) => as.mintAmongOthers({ clientId, externalUserId: ada }),
    malformed: (as, clientId) =>
      as.mintAmongOthers({ clientId, externalUserId: nobody, scope: ' ' }),
    missing: (as, clientId) => as.mintAmongOthers({ clientId, externalUserId: nobody }),
  },
  {
    name: 'GetAllowance',
    guard: 'm2m',
    scope: 'users:read',
    call: (as, clientId) => as.getAllowance({ clientId, externalUserId: ada }),
    malformed: (as, clientId) => as.getAllowance({ clientId }),
    missing: (as, clientId) => as.getAllowance({ clientId, externalUserId: nobody }),
  },
  {
    name: 'CreateGrant',
    guard: 'm2m',
    scope: 'users:write',
    call: (as, clientId) => as.createGrant({ clientId, externalUserId: ada, amountUsdMicros: '1' }),
    malformed: (as, clientId) =>
      as.createGrant({
        clientId,
        externalUserId: nobody,
        amountUsdMicros: '1',
        idempotencyKey: ' ',
      }),
    missing: (as, clientId) =>
      as.createGrant({ clientId, externalUserId: nobody, amountUsdMicros: '1' }),
  },
  {
    name: 'GetLimits',
    guard: 'm2m',
    scope: 'users:read',
    call: (as, clientId) => as.getLimits({ clientId, externalUserId: ada }),
    malformed: (as, clientId) => as.getLimits({ clientId }),
    missing: (as, clientId) => as.getLimits({ clientId, externalUserId: nobody }),
  },
  {
    name: 'UpdateLimits',
    guard: 'm2m',
    scope: 'users:write',
    call: (as, clientId) =>
      as.updateLimits({
        clientId,
        externalUserId: ada,
        limits: { callsPerMinute: 1, maxPrices: [] },
      }),
    malformed: (as, clientId) => as.updateLimits({ clientId, externalUserId: nobody }),
    missing: (as, clientId) =>
      as.updateLimits({
        clientId,
        externalUserId: nobody,
        limits: { callsPerMinute: 1, maxPrices: [] },
      }),
  },
  {
    name: 'DeleteLimits',
    guard: 'm2m',
    scope: 'users:write',
    call: (as, clientId) => as.deleteLimits({ clientId, externalUserId: ada }),
    malformed: (as, clientId) => as.deleteLimits({ clientId }),
    missing: (as, clientId) => as.deleteLimits({ clientId, externalUserId: nobody }),
  },
  {
    name: 'GetBalance',
    guard: 'm2m_basic',
    call: (as, clientId) => as.getBalance({ clientId, externalUserId: ada }),
    malformed: (as, clientId) => as.getBalance({ clientId }),
    missing: (as, clientId) => as.getBalance({ clientId, externalUserId: nobody }),
  },
  {
    name: 'ListLoss',
    guard: 'm2m_basic',
    call: (as, clientId) => as.listLoss({ clientId }),
    malformed: (as, clientId) => as.listLoss({ clientId, cursor: 'x' }),
  },
  {
    name: 'QueryUsage',
    guard: 'm2m_basic',
    call: (as, clientId) => as.queryUsage({ clientId }),
    malformed: (as, clientId) => as.queryUsage({ clientId, groupBy: 'x' }),
  },
  {
    name: 'CheckCaller (m2m)',
    guard: 'm2m',
    scope: 'users:read',
    call: (as, clientId) => as.checkCaller({ clientId, kind: 'm2m', scope: 'users:read' }),
  },
  {
    name: 'CheckCaller (m2m_basic)',
    guard: 'm2m_basic',
    call: (as, clientId) => as.checkCaller({ clientId, kind: 'm2m_basic' }),
  },
]
