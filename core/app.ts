import { setTimeout as sleep } from 'node:timers/promises'
import { Server } from '@grpc/grpc-js'
import { AllowanceServiceService } from '../proto/gen/ts-proto/tollgate/allowances/v1/allowances.ts'
import { BooksServiceService } from '../proto/gen/ts-proto/tollgate/books/v1/books.ts'
import { AccountServiceService } from '../proto/gen/ts-proto/tollgate/identity/v1/accounts.ts'
import { AppServiceService, CallerServiceService, UserServiceService } from '../proto/gen/ts-proto/tollgate/identity/v1/identity.ts'
import { ManagementServiceService } from '../proto/gen/ts-proto/tollgate/identity/v1/management.ts'
import { KeyServiceService } from '../proto/gen/ts-proto/tollgate/keys/v1/keys.ts'
import { MeteringServiceService } from '../proto/gen/ts-proto/tollgate/metering/v1/metering.ts'
import { QuarantineServiceService } from '../proto/gen/ts-proto/tollgate/metering/v1/quarantine.ts'
import { CatalogServiceService } from '../proto/gen/ts-proto/tollgate/plans/v1/catalog.ts'
import { SignerServiceService } from '../proto/gen/ts-proto/tollgate/signer/v1/signer.ts'
import { AuthorizationServiceService } from '../proto/gen/ts-proto/tollgate/tokens/v1/authorization.ts'
import { DeviceServiceService } from '../proto/gen/ts-proto/tollgate/tokens/v1/devices.ts'
import { GrantServiceService } from '../proto/gen/ts-proto/tollgate/tokens/v1/grants.ts'
import { TokenServiceService } from '../proto/gen/ts-proto/tollgate/tokens/v1/tokens.ts'
import { UsageServiceService } from '../proto/gen/ts-proto/tollgate/usage/v1/usage.ts'
import { createAdjustments } from './allowances/adjustments.ts'
import { createLedger } from './allowances/ledger.ts'
import { createAllowancesRpc } from './allowances/rpc.ts'
import { createAllowances } from './allowances/service.ts'
import { createArchive } from './books/archive.ts'
import { createExport } from './books/export.ts'
import { createImport } from './books/import.ts'
import { createRebuild } from './books/rebuild.ts'
import { createBooksRpc } from './books/rpc.ts'
import { createVerify } from './books/verify.ts'
import type { CoreConfig } from './config.ts'
import { migrate } from './db/migrate.ts'
import { addHealthAndReflection } from './health.ts'
import { createIdempotency } from './idempotency.ts'
import { createAccounts } from './identity/accounts.ts'
import { createAccountsRpc } from './identity/accounts-rpc.ts'
import { createApps } from './identity/apps.ts'
import { createManagement } from './identity/management.ts'
import { createManagementRpc } from './identity/management-rpc.ts'
import { createMembers } from './identity/members.ts'
import { createIdentityRpc } from './identity/rpc.ts'
import { createUsers } from './identity/service.ts'
import { createInvalidations } from './invalidations.ts'
import { createAppKeys } from './keys/app-keys.ts'
import { createKeysRpc } from './keys/rpc.ts'
import { createKeys } from './keys/service.ts'
import type { Log } from './lib/log.ts'
import type { Metrics } from './lib/metrics.ts'
import { createPool } from './lib/sql.ts'
import { type Now, systemNow } from './lib/time.ts'
import { createDoor, refusingPoison } from './metering/door.ts'
import { startLoop } from './metering/loop.ts'
import { createPartitions } from './metering/partitions.ts'
import { createQuarantine } from './metering/quarantine.ts'
import { createQuarantineMetrics } from './metering/quarantine-metrics.ts'
import { createQuarantineRpc } from './metering/quarantine-rpc.ts'
import { createMetering } from './metering/service.ts'
import { createMeteringRpc } from './metering/rpc.ts'
import { createCatalog } from './plans/catalog.ts'
import { createCatalogRpc } from './plans/catalog-rpc.ts'
import { createPlans } from './plans/service.ts'
import { createSecrets } from './secrets.ts'
import { createServing, listenGrpc } from './serve.ts'
import { createSignerRpc } from './signer/rpc.ts'
import { createSigner } from './signer/service.ts'
import { createGrants } from './tokens/grants/service.ts'
import { createJwts } from './tokens/jwt.ts'
import { createKeyRotation } from './tokens/key-rotation.ts'
import { createAuthorizations } from './tokens/authorization.ts'
import { createAuthorizationRpc } from './tokens/authorization-rpc.ts'
import { createLogouts } from './tokens/logout.ts'
import { createTokensRpc } from './tokens/rpc.ts'
import { createTokens } from './tokens/service.ts'
import { createSignerSessions } from './tokens/signer-sessions.ts'
import { createSigningKeys } from './tokens/signing-keys.ts'
import { createSubjects } from './tokens/subjects.ts'
import { createUsageRpc } from './usage/rpc.ts'
import { createUsage } from './usage/service.ts'
import { startUpkeep } from './upkeep.ts'

export interface CoreDeps {
  readonly log: Log
  readonly metrics: Metrics
  readonly now?: Now
}

const statementTimeoutMs = 10_000
const drainMs = 2_500
const closeMs = 300
const messageMaxBytes = 16 * 1024 * 1024
const archivePauseMs = 3_600_000

/** Migrates, wires everything top to bottom, and serves. Rejects with one clear error when it cannot start. */
export async function startCore(config: CoreConfig, { log, metrics, now = systemNow }: CoreDeps) {
  await migrate(config.databaseUrl)
  const pool = createPool({ url: config.databaseUrl, max: config.databasePoolMax, name: 'tollgate-core', statementTimeoutMs })
  pool.on('error', (error) => log.warn({ err: error }, 'idle database connection lost'))
  const stopping = new AbortController()
  const { issuer, sealingKey, redisUrl, revocationBoundSeconds } = config

  const invalidations = createInvalidations({ redisUrl, tombstoneSeconds: revocationBoundSeconds, log })
  const secrets = createSecrets(config.peppers)
  const idempotency = createIdempotency({ pool, sealingKey, now })
  const ledger = createLedger()
  const plans = createPlans({ ledger })
  const apps = createApps({ pool, plans, secrets, now })
  const accounts = createAccounts({ pool, now, idleSeconds: config.sessionIdleSeconds })
  const management = createManagement({
    pool, secrets, idempotency, invalidations, secretOverlapSeconds: config.secretOverlapSeconds, now,
  })
  const members = createMembers({ pool, now })
  const catalog = createCatalog({ pool, now })
  const users = createUsers({ pool, plans, invalidations, log, now })
  const keys = createKeys({ pool, users, secrets, idempotency, invalidations, log, now })
  const appKeys = createAppKeys({ pool, secrets, idempotency, invalidations, sealingKey, now })
  const signingKeys = createSigningKeys({ pool, sealingKey, alg: config.tokens.alg, now })
  const rotation = createKeyRotation({
    pool, signingKeys, tokenTtlSecondsMax: longestTtl(config), everyDays: config.signingKeyRotationDays, now,
  })
  const jwts = createJwts({ issuer, signingKeys, pool, now })
  const subjects = createSubjects({ jwts, apps, users })
  const tokens = createTokens({ ...config.tokens, jwts, subjects, apps, users, keys })
  const sessions = createSignerSessions({
    pool, users, secrets, invalidations, ttlSeconds: config.grants.sessionTtlSeconds, now,
  })
  const authorizations = createAuthorizations({
    pool, issuer, accounts, users, codeTtlSeconds: config.authorizationCodeTtlSeconds, now,
  })
  const logouts = createLogouts({ pool, issuer, signingKeys, users })
  const metering = createMetering({ config: config.metering, pool, users, ledger, invalidations, log, metrics, now })
  const door = createDoor({
    charge: ledger.charge, resolveSubjects: users.resolveSubjects, partitions: createPartitions(pool, now),
    rateMaxAgeSeconds: config.metering.rates.maxAgeSeconds,
  })
  const quarantine = createQuarantine({ pool, now, log, door, invalidations })
  const tickets = {
    ...createExport({ pool }), ...createImport({ pool, now, log, door, refusingPoison, invalidations }),
  }
  const archive = createArchive({ pool, now, log, config: config.books, pages: tickets.pages })
  createQuarantineMetrics(metrics, quarantine.waiting)
  const usage = createUsage({ pool, users })
  const allowances = createAllowances({
    pool, ledger, users, idempotency, invalidations, countUnpriced: usage.countUnpriced, log, now,
  })
  const adjustments = createAdjustments({ pool, ledger, users, idempotency, invalidations, log, now })
  const grants = createGrants({
    config: config.grants, defaultSignerUrl: config.routing.defaultDmzUrl, pool, jwts, subjects, users, keys, sessions,
    allowances, accountBySession: accounts.bySession, revocationBoundSeconds, log, now,
  })
  const signer = createSigner({ pool, ledger, users, keys, sessions, usableRate: metering.usableRate, now })

  await signingKeys.prepare()
  const serving = createServing({
    authenticator: {
      m2mByBasic: apps.authenticate, m2mByToken: tokens.m2mByToken, userByToken: tokens.userByToken,
      accountBySession: accounts.bySession, memberOf: accounts.memberOf,
    },
    serviceToken: config.serviceToken, log, metrics,
  })
  const server = new Server({
    'grpc.max_receive_message_length': messageMaxBytes, 'grpc.max_concurrent_streams': 1_000,
  })
  const identity = createIdentityRpc({ apps, users, starterUsdMicros: config.starterUsdMicros, revocationBoundSeconds })
  const services = [
    serving.bind(AppServiceService, identity.appService),
    serving.bind(CallerServiceService, identity.callerService),
    serving.bind(AccountServiceService, createAccountsRpc({ accounts }).accountService),
    serving.bind(UserServiceService, identity.userService),
    serving.bind(ManagementServiceService, createManagementRpc({
      apps, management, members, starterUsdMicros: config.starterUsdMicros, routing: config.routing,
    }).managementService),
    serving.bind(CatalogServiceService, createCatalogRpc({ catalog }).catalogService),
    serving.bind(KeyServiceService, createKeysRpc({ keys, appKeys, revocationBoundSeconds }).keyService),
    serving.bind(AuthorizationServiceService, createAuthorizationRpc({ authorizations, logouts }).authorizationService),
    serving.bind(GrantServiceService, grants.grantService),
    serving.bind(DeviceServiceService, grants.deviceService),
    serving.bind(TokenServiceService, createTokensRpc({ tokens, signingKeys, rotation }).tokenService),
    serving.bind(AllowanceServiceService, createAllowancesRpc({ allowances, adjustments }).allowanceService),
    serving.bind(MeteringServiceService, createMeteringRpc({ metering }).meteringService),
    serving.bind(QuarantineServiceService, createQuarantineRpc({ quarantine }).quarantineService),
    serving.bind(BooksServiceService, createBooksRpc({
      verify: createVerify({ pool }), rebuild: createRebuild({ pool, now }), tickets, archive,
    }).booksService),
    serving.bind(UsageServiceService, createUsageRpc({ usage }).usageService),
    serving.bind(SignerServiceService, createSignerRpc({ signer, invalidations, stopping: stopping.signal }).signerService),
  ]
  for (const { definition, implementation } of services) server.addService(definition, implementation)
  const health = addHealthAndReflection(server)
  const listening = await listenGrpc(server, config)
  const upkeep = startUpkeep({ pool, ledger, idempotency, forget: [accounts.forgetEnded, authorizations.forgetEnded, grants.forgetEnded, rotation.tend], log, now })
  await metering.start()
  const archiving = config.books.retentionMonths === 0 ? null : startLoop({
    name: 'archive', log, pauseMs: archivePauseMs, delayed: true, round: (signal) => archive.run({ dryRun: false, signal, tell: () => {} }),
  })
  health.set(true)

  async function ready(): Promise<Record<string, boolean>> {
    const database = await pool.query('select 1').then(() => true, () => false)
    return { database, redis: await invalidations.ready(), ...await metering.ready() }
  }

  /** Tells health checks first, lets running calls finish, then closes what they stood on. */
  async function drain(): Promise<void> {
    health.set(false)
    stopping.abort()
    await Promise.race([Promise.all([listening.stop(drainMs), metering.stop(), upkeep.stop(), archiving?.stop()]), after(drainMs)])
    invalidations.stop()
    // A statement that hangs has its own time limit; nobody waits for it here.
    await Promise.race([pool.end(), after(closeMs)])
  }

  let stopped: Promise<void> | undefined
  const stop = (): Promise<void> => (stopped ??= drain())

  return { target: `${config.host === '0.0.0.0' ? '127.0.0.1' : config.host}:${listening.port}`, port: listening.port, ready, stop }
}

/** A retired key is needed as long as the longest token that it may have signed. */
const longestTtl = ({ tokens, grants }: CoreConfig): number =>
  Math.max(tokens.userTtlSeconds, tokens.machineTtlSeconds, grants.loginTtlSeconds, grants.signerTtlSeconds)

const after = (milliseconds: number): Promise<void> => sleep(milliseconds, undefined, { ref: false })

export type Core = Awaited<ReturnType<typeof startCore>>
