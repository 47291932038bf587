import { AuthorizationServiceService } from '../../proto/gen/ts-proto/tollgate/tokens/v1/authorization.ts'
import { DeviceServiceService } from '../../proto/gen/ts-proto/tollgate/tokens/v1/devices.ts'
import { GrantServiceService } from '../../proto/gen/ts-proto/tollgate/tokens/v1/grants.ts'
import { TokenServiceService } from '../../proto/gen/ts-proto/tollgate/tokens/v1/tokens.ts'
import type { Allowances } from '../allowances/service.ts'
import type { IdentityApi } from '../identity/module.ts'
import type { Keys } from '../keys/service.ts'
import type { Platform } from '../platform/platform.ts'
import type { Authenticator } from '../rpc/callers.ts'
import { grpcService } from '../rpc/serve.ts'
import type { TokensConfig } from './config.ts'
import { createGrants } from './grants/service.ts'
import { createJwts } from './issuer/jwt.ts'
import { createKeyRotation } from './issuer/rotation.ts'
import { createSigningKeys } from './issuer/signing-keys.ts'
import { createAuthorizations } from './login/authorization.ts'
import { createLogouts } from './login/logout.ts'
import { createAuthorizationRpc } from './login/rpc.ts'
import { createTokensRpc } from './rpc.ts'
import { createTokens } from './service.ts'
import { createSignerSessions } from './sessions/signer-sessions.ts'
import { createSubjects } from './subjects.ts'

export interface TokensOthers {
  readonly config: TokensConfig
  readonly identity: IdentityApi
  readonly allowances: Allowances
  readonly keys: Keys
}

/** The OAuth issuer: signing keys, JWTs, every grant type, logins, devices and signer sessions. */
export function createTokensModule(
  platform: Platform,
  { config, identity: { apps, accounts, users }, allowances, keys }: TokensOthers,
) {
  const { pool, log, now, secrets, invalidations } = platform
  const { issuer, sealingKey, revocationBoundSeconds, defaultSignerUrl } = platform.config
  const signingKeys = createSigningKeys({ pool, sealingKey, alg: config.alg, now })
  const rotation = createKeyRotation({
    pool,
    signingKeys,
    tokenTtlSecondsMax: longestTtl(config),
    everyDays: config.signingKeyRotationDays,
    now,
  })
  const jwts = createJwts({ issuer, signingKeys, pool, now })
  const subjects = createSubjects({ jwts, apps, users })
  const tokens = createTokens({ ...config, jwts, subjects, apps, users, keys })
  const sessions = createSignerSessions({
    pool,
    users,
    secrets,
    invalidations,
    ttlSeconds: config.grants.sessionTtlSeconds,
    now,
  })
  const authorizations = createAuthorizations({
    pool,
    issuer,
    accounts,
    users,
    codeTtlSeconds: config.authorizationCodeTtlSeconds,
    now,
  })
  const grants = createGrants({
    config: config.grants,
    invalidations,
    defaultSignerUrl,
    pool,
    jwts,
    subjects,
    users,
    keys,
    sessions,
    allowances,
    accountBySession: accounts.bySession,
    revocationBoundSeconds,
    log,
    now,
  })
  const { authorizationService } = createAuthorizationRpc({
    authorizations,
    logouts: createLogouts({ pool, issuer, signingKeys, users }),
  })

  const authenticator: Authenticator = {
    m2mByBasic: apps.authenticate,
    m2mByToken: tokens.m2mByToken,
    userByToken: tokens.userByToken,
    accountBySession: accounts.bySession,
    memberOf: accounts.memberOf,
  }

  return {
    api: {
      authenticator,
      isVoidToken: jwts.isVoidToken,
      sessions,
    },
    services: [
      grpcService(
        TokenServiceService,
        createTokensRpc({ tokens, signingKeys, rotation }).tokenService,
      ),
      grpcService(GrantServiceService, grants.grantService),
      grpcService(DeviceServiceService, grants.deviceService),
      grpcService(AuthorizationServiceService, authorizationService),
    ],
    lifecycle: { prepare: signingKeys.prepare },
    upkeep: [authorizations.forgetEnded, grants.forgetEnded, rotation.tend],
  }
}

export type TokensApi = ReturnType<typeof createTokensModule>['api']

/** A retired signing key stays published as long as the longest-lived token that it may have signed. */
const longestTtl = ({ userTtlSeconds, machineTtlSeconds, grants }: TokensConfig): number =>
  Math.max(userTtlSeconds, machineTtlSeconds, grants.loginTtlSeconds, grants.signerTtlSeconds)
