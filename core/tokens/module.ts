import { AuthorizationServiceService } from '../../proto/gen/ts-proto/tollgate/tokens/v1/authorization.ts'
import { DeviceServiceService } from '../../proto/gen/ts-proto/tollgate/tokens/v1/devices.ts'
import { GrantServiceService } from '../../proto/gen/ts-proto/tollgate/tokens/v1/grants.ts'
import { TokenServiceService } from '../../proto/gen/ts-proto/tollgate/tokens/v1/tokens.ts'
import type { Allowances } from '../balances/credit/allowances.ts'
import type { IdentityApi } from '../identity/module.ts'
import type { CredentialIssuer } from '../identity/types.ts'
import type { Keys } from '../keys/keys.ts'
import { addSeconds } from '../lib/time.ts'
import { accountId, accountSubject } from '../shared/ids.ts'
import type { Shared } from '../shared/shared.ts'
import { deleteInBatches } from '../shared/upkeep.ts'
import type { Authenticator } from '../rpc/callers.ts'
import { grpcService } from '../rpc/serve.ts'
import type { TokensConfig } from './config.ts'
import { createDevices } from './devices/devices.ts'
import { createDevicesRpc } from './devices/rpc.ts'
import { deleteDevicesOfApp, deleteExpiredDevices } from './devices/store.ts'
import { createAuthorizationCodeGrant } from './grants/authorization-code.ts'
import { createBuilderExchange } from './grants/builder-exchange.ts'
import { createClientCredentialsGrant } from './grants/client-credentials.ts'
import { createDeviceCodeGrant } from './grants/device-code.ts'
import { createDeviceTokenExchange } from './grants/device-token.ts'
import { createExchangeAudit } from './grants/exchange-audit.ts'
import { createForeignSubjects } from './grants/foreign-subject.ts'
import { createRefreshTokenGrant } from './grants/refresh-token.ts'
import { createGrantsRpc } from './grants/rpc.ts'
import { createSignerTokens } from './grants/signer-token.ts'
import { createTokenExchange } from './grants/token-exchange.ts'
import { type Jwts, createJwts } from './issuer/jwt.ts'
import { createKeyRotation } from './issuer/rotation.ts'
import { type SigningKeys, createSigningKeys } from './issuer/signing-keys.ts'
import { createAuthorizations } from './login/authorization.ts'
import { createIdTokenHints } from './login/id-token-hints.ts'
import { createLogouts } from './login/logout.ts'
import { createOwnLogins } from './login/own-logins.ts'
import { createAuthorizationRpc } from './login/rpc.ts'
import {
  deleteExpiredCodes,
  deleteExpiredFamilies,
  endFamilies,
  endFamiliesOfApp,
  endFamiliesOfUser,
} from './login/store.ts'
import { createTokenFamilies } from './login/token-families.ts'
import { createIntrospection } from './revocation/introspection.ts'
import { createRevocation } from './revocation/revocation.ts'
import { createTokensRpc } from './rpc.ts'
import { createSignerSessions } from './sessions/signer-sessions.ts'
import {
  deleteExpiredSessions,
  revokeSessionsOfApp,
  revokeSessionsOfUser,
} from './sessions/store.ts'
import { createSubjects } from './subjects.ts'
import { createUserTokens } from './user-tokens.ts'

export { sealedSigningKeys } from './issuer/store.ts'

/**
 * Ends logins, signer sessions and devices with their user or app. Separate from the module,
 * because identity is created before tokens.
 */
export const tokenCredentials: CredentialIssuer = {
  async endOfUser(db, user, at) {
    await endFamiliesOfUser(db, user, at)
    return revokeSessionsOfUser(db, user, at)
  },
  endOfLogins: (db, { appId, accountId: account }, at) =>
    endFamilies(db, { appId, externalUserId: accountSubject(accountId(account)) }, at),
  async endOfApp(db, app, at) {
    await revokeSessionsOfApp(db, app, at)
    await endFamiliesOfApp(db, app, at)
    await deleteDevicesOfApp(db, app)
    // No ids: caches in other processes drop a deleted app's sessions at their own time limit.
    return []
  },
}

export interface TokensOthers {
  readonly config: TokensConfig
  readonly identity: IdentityApi
  readonly allowances: Allowances
  readonly keys: Keys
}

/** The OAuth issuer: signing keys, JWTs, all grant types, logins, devices and signer sessions. */
export function createTokensModule(shared: Shared, others: TokensOthers) {
  const { clients, accounts } = others.identity
  const { signingKeys, rotation, jwts } = createIssuer(shared, others.config)
  const { isVoidToken, signStatement } = jwts
  const parts = createParts(shared, others, jwts)
  const { subjects, foreignSubjects, sessions } = parts
  const { clientCredentials, grantService } = createGrants(shared, others, parts)
  const userTokens = createUserTokens({ ...parts, ttlSeconds: others.config.userTtlSeconds })
  const { tokenService } = createTokensRpc({ userTokens, clientCredentials, signingKeys, rotation })
  const { deviceService } = createDevicesRpc({ ...parts, accountBySession: accounts.bySession })
  const { authorizationService } = createLogins(shared, others, { ...parts, signingKeys })

  const authenticator: Authenticator = {
    m2mByBasic: clients.authenticate,
    m2mByToken: subjects.m2mByToken,
    userByToken: subjects.userByToken,
    actorByToken: async (token, clientId) =>
      foreignSubjects.isForeign(token)
        ? foreignSubjects.callerOf(token, clientId ?? null)
        : subjects.userByToken(token),
    userByBuilderKey: others.keys.builderUser,
    provisionerByBasic: others.identity.provisioners.admit,
    accountBySession: accounts.bySession,
    memberOf: accounts.memberOf,
    userOfAccount: subjects.ofAccount,
    appOf: clients.appOf,
  }

  return {
    api: { authenticator, isVoidToken, signStatement, sessions },
    services: [
      grpcService(TokenServiceService, tokenService),
      grpcService(GrantServiceService, grantService),
      grpcService(DeviceServiceService, deviceService),
      grpcService(AuthorizationServiceService, authorizationService),
    ],
    lifecycle: {
      prepare: async () => {
        await signingKeys.prepare()
        await rotation.adoptAlgorithm()
      },
    },
    upkeep: [...deletions(shared), rotation.tend],
  }
}

export type TokensApi = ReturnType<typeof createTokensModule>['api']

/** The signing keys, their rotation, and the JWTs signed with them. */
function createIssuer(shared: Shared, config: TokensConfig) {
  const signingKeys = createSigningKeys({ ...shared, alg: config.alg })
  const rotation = createKeyRotation({
    ...shared,
    signingKeys,
    tokenTtlSecondsMax: longestTtl(config),
    everyDays: config.signingKeyRotationDays,
  })
  return {
    signingKeys,
    rotation,
    jwts: createJwts({ ...shared, issuer: shared.config.issuer, signingKeys }),
  }
}

/** A retired signing key stays published for the longest lifetime of any token signed with it. */
const longestTtl = ({ userTtlSeconds, machineTtlSeconds, login, signer }: TokensConfig): number =>
  Math.max(userTtlSeconds, machineTtlSeconds, login.ttlSeconds, signer.ttlSeconds)

/** Parts shared by several grant types. */
function createParts(
  shared: Shared,
  {
    config,
    identity: { clients, accounts, users, owners, foreignTokens, loginPolicy, provisioners },
    allowances,
    keys,
  }: TokensOthers,
  jwts: Jwts,
) {
  const { issuer, defaultSignerUrl } = shared.config
  const { signer, login, device, enforceAllowance } = config
  const people = { clients, users, owners, foreignTokens, loginPolicy, provisioners }
  const common = { ...shared, ...people, issuer, jwts, keys }
  const foreignSubjects = createForeignSubjects(common)
  const base = { ...common, foreignSubjects, subjects: createSubjects(common) }
  return {
    ...base,
    exchangeAudit: createExchangeAudit(shared),
    sessions: createSignerSessions({ ...base, ttlSeconds: signer.sessionTtlSeconds }),
    families: createTokenFamilies({ ...base, ...login, findAccount: accounts.find }),
    devices: createDevices({ ...base, ...device }),
    signerTokens: createSignerTokens({
      ...base,
      allowances,
      ttlSeconds: signer.ttlSeconds,
      enforceAllowance,
      defaultSignerUrl,
    }),
  }
}

/** Logins of people: authorization requests, logout, and the logins that a person ends itself. */
function createLogins(
  shared: Shared,
  { config, identity: { accounts, users } }: TokensOthers,
  parts: ReturnType<typeof createParts> & { readonly signingKeys: SigningKeys },
) {
  const idTokenHints = createIdTokenHints({ ...parts, users })
  const { authorizationCodeTtlSeconds: codeTtlSeconds, edgeUrl } = config
  const logins = { ...parts, idTokenHints, accounts, codeTtlSeconds, edgeUrl }
  return createAuthorizationRpc({
    authorizations: createAuthorizations(logins),
    logouts: createLogouts(logins),
    ownLogins: createOwnLogins({ ...logins, ...config.login }),
    revocationBoundSeconds: shared.config.revocationBoundSeconds,
  })
}

/** All OAuth grants, introspection and revocation. */
function createGrants(
  { config: { revocationBoundSeconds } }: Shared,
  { config: { machineTtlSeconds: ttlSeconds } }: TokensOthers,
  parts: ReturnType<typeof createParts>,
) {
  const clientCredentials = createClientCredentialsGrant({ ...parts, ttlSeconds })
  const { grantService } = createGrantsRpc({
    ...parts,
    authorizationCode: createAuthorizationCodeGrant(parts),
    clientCredentials,
    deviceCode: createDeviceCodeGrant(parts),
    deviceToken: createDeviceTokenExchange(parts),
    refreshToken: createRefreshTokenGrant(parts),
    tokenExchange: createTokenExchange(parts),
    builderExchange: createBuilderExchange(parts),
    introspection: createIntrospection(parts),
    revocation: createRevocation(parts),
    revocationBoundSeconds,
  })
  return { clientCredentials, grantService }
}

const keptSeconds = 86_400

/**
 * Upkeep: deletes what expired more than a day ago. Until then a second use of a code or a token is
 * detected.
 */
function deletions({ pool, now }: Shared) {
  const stores = [
    deleteExpiredCodes,
    deleteExpiredDevices,
    deleteExpiredFamilies,
    deleteExpiredSessions,
  ]
  return stores.map(
    (deleteExpired) => () =>
      deleteInBatches((limit) => deleteExpired(pool, addSeconds(now(), -keptSeconds), limit)),
  )
}
