import type { AccountCaller } from '../../rpc/callers.ts'
import type { Allowances } from '../../allowances/service.ts'
import type { Users } from '../../identity/users/users.ts'
import type { Invalidations } from '../../platform/invalidations.ts'
import type { Keys } from '../../keys/service.ts'
import type { Log } from '../../lib/log.ts'
import type { Pool } from '../../lib/sql.ts'
import { type Now, addSeconds } from '../../lib/time.ts'
import { createDevicesRpc } from '../devices/rpc.ts'
import { createDevices } from '../devices/devices.ts'
import { forgetEnded } from '../login/family-store.ts'
import { createIntrospection } from '../revocation/introspection.ts'
import type { Jwts } from '../issuer/jwt.ts'
import { createLogins } from '../login/login.ts'
import { createRevocation } from '../revocation/revocation.ts'
import type { SignerSessions } from '../sessions/signer-sessions.ts'
import type { Subjects } from '../subjects.ts'
import { createAuthorizationCodeGrant } from './authorization-code.ts'
import type { GrantsConfig } from './config.ts'
import { createDeviceCodeGrant } from './device-code.ts'
import { createDeviceExchange } from './device-token.ts'
import { createJournal } from './journal.ts'
import { createMintSigner } from './mint-signer.ts'
import { createRefreshTokenGrant } from './refresh-token.ts'
import { createGrantsRpc } from './rpc.ts'
import { createSignerTokens } from './signer-token.ts'
import { createTokenExchange } from './token-exchange.ts'

export interface GrantsDeps {
  readonly config: GrantsConfig
  /** Told in signer sessions of apps that name no signer of their own. */
  readonly defaultSignerUrl: string
  readonly pool: Pool
  readonly invalidations: Invalidations
  readonly jwts: Jwts
  readonly subjects: Subjects
  readonly users: Users
  readonly keys: Keys
  readonly sessions: SignerSessions
  readonly allowances: Allowances
  readonly accountBySession: (token: string) => Promise<AccountCaller>
  readonly revocationBoundSeconds: number
  readonly log: Log
  readonly now: Now
}

const forgetAfterSeconds = -86_400

/** Every grant of the token endpoint, and what becomes of the tokens. */
export function createGrants(deps: GrantsDeps) {
  const {
    config,
    pool,
    jwts,
    subjects,
    users,
    keys,
    sessions,
    allowances,
    invalidations,
    log,
    now,
  } = deps
  const { issuer } = jwts
  const journal = createJournal({ pool, log, now })
  const signerTokens = createSignerTokens({
    pool,
    jwts,
    allowances,
    config,
    defaultSignerUrl: deps.defaultSignerUrl,
  })
  const devices = createDevices({
    pool,
    users,
    ttlSeconds: config.deviceTtlSeconds,
    intervalSeconds: config.deviceIntervalSeconds,
    now,
  })
  const logins = createLogins({
    pool,
    jwts,
    invalidations,
    ttlSeconds: config.loginTtlSeconds,
    refreshTtlSeconds: config.refreshTtlSeconds,
    now,
  })
  const { grantService } = createGrantsRpc({
    tokenExchange: createTokenExchange({
      issuer,
      pool,
      keys,
      subjects,
      sessions,
      devices,
      signerTokens,
      journal,
      now,
    }),
    mintSigner: createMintSigner({ issuer, users, signerTokens, journal }),
    deviceCode: createDeviceCodeGrant({ pool, logins, now }),
    authorizationCode: createAuthorizationCodeGrant({ pool, logins, now }),
    refreshToken: createRefreshTokenGrant({ pool, logins, now }),
    deviceToken: createDeviceExchange({ subjects, signerTokens, journal }),
    introspection: createIntrospection({ pool, jwts, subjects, sessions, now }),
    revocation: createRevocation({ pool, jwts, sessions, invalidations, now }),
    logins,
    sessions,
    revocationBoundSeconds: deps.revocationBoundSeconds,
  })
  const { deviceService } = createDevicesRpc({ devices, accountBySession: deps.accountBySession })

  return {
    grantService,
    deviceService,
    forgetEnded: () => forgetEnded(pool, addSeconds(now(), forgetAfterSeconds)),
  }
}
