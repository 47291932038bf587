import { setTimeout as sleep } from 'node:timers/promises'
import { Server } from '@grpc/grpc-js'
import { AllowanceServiceService } from '../proto/gen/ts-proto/tollgate/allowances/v1/allowances.ts'
import { BooksServiceService } from '../proto/gen/ts-proto/tollgate/books/v1/books.ts'
import { AccountServiceService } from '../proto/gen/ts-proto/tollgate/identity/v1/accounts.ts'
import {
  AppServiceService,
  CallerServiceService,
  UserServiceService,
} from '../proto/gen/ts-proto/tollgate/identity/v1/identity.ts'
import { ManagementServiceService } from '../proto/gen/ts-proto/tollgate/identity/v1/management.ts'
import { KeyServiceService } from '../proto/gen/ts-proto/tollgate/keys/v1/keys.ts'
import { LossServiceService } from '../proto/gen/ts-proto/tollgate/metering/v1/loss.ts'
import { MeteringServiceService } from '../proto/gen/ts-proto/tollgate/metering/v1/metering.ts'
import { QuarantineServiceService } from '../proto/gen/ts-proto/tollgate/metering/v1/quarantine.ts'
import { OutboxServiceService } from '../proto/gen/ts-proto/tollgate/metering/v1/outbox.ts'
import { ReconciliationServiceService } from '../proto/gen/ts-proto/tollgate/metering/v1/reconciliation.ts'
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
import { createMetered } from './rpc/callers.ts'
import { createBooks } from './books/service.ts'
import type { CoreConfig } from './config.ts'
import { migrate } from './db/migrate.ts'
import { addHealthAndReflection } from './rpc/health.ts'
import { createIdempotency } from './platform/idempotency.ts'
import { createAccounts } from './identity/accounts/accounts.ts'
import { createAccountsRpc } from './identity/accounts/rpc.ts'
import { createApps } from './identity/apps/apps.ts'
import { createManagement } from './identity/apps/management.ts'
import { createManagementRpc } from './identity/apps/management-rpc.ts'
import { createMembers } from './identity/members/members.ts'
import { createIdentityRpc } from './identity/rpc.ts'
import { createUsers } from './identity/users/users.ts'
import { createInvalidations } from './platform/invalidations.ts'
import { createAppKeys } from './keys/app-keys.ts'
import { createKeysRpc } from './keys/rpc.ts'
import { createKeys } from './keys/service.ts'
import type { Log } from './lib/log.ts'
import type { Metrics } from './lib/metrics.ts'
import { createPool } from './lib/sql.ts'
import { type Now, systemNow } from './lib/time.ts'
import { createBackfill } from './metering/backend/backfill.ts'
import { createEmitter } from './metering/backend/emit.ts'
import { createReconciliation } from './metering/backend/reconciliation.ts'
import { createReconciliationRpc } from './metering/backend/rpc.ts'
import { createBackend } from './metering/backend/service.ts'
import { listenGrpc } from './rpc/listen.ts'
import { createLossRpc } from './metering/loss/rpc.ts'
import { createMetering } from './metering/service.ts'
import { createMeteringRpc } from './metering/rpc.ts'
import { createOutbox } from './platform/outbox/outbox.ts'
import { createOutboxRpc } from './platform/outbox/rpc.ts'
import { createCatalog } from './plans/catalog/catalog.ts'
import { createCatalogRpc } from './plans/catalog/rpc.ts'
import { createPlans } from './plans/service.ts'
import { createSecrets } from './platform/secrets.ts'
import { createServing } from './rpc/serve.ts'
import { createSignerRpc } from './signer/rpc.ts'
import { createSigner } from './signer/service.ts'
import { createGrants } from './tokens/grants/service.ts'
import { createJwts } from './tokens/issuer/jwt.ts'
import { createKeyRotation } from './tokens/issuer/rotation.ts'
import { createAuthorizations } from './tokens/login/authorization.ts'
import { createAuthorizationRpc } from './tokens/login/rpc.ts'
import { createLogouts } from './tokens/login/logout.ts'
import { createTokensRpc } from './tokens/rpc.ts'
import { createTokens } from './tokens/service.ts'
import { createSignerSessions } from './tokens/sessions/signer-sessions.ts'
import { createSigningKeys } from './tokens/issuer/signing-keys.ts'
import { createSubjects } from './tokens/subjects.ts'
import { createCursors } from './usage/feed/cursor.ts'
import { createFeed } from './usage/feed/feed.ts'
import { createFollow } from './usage/feed/follow.ts'
import { createHistory } from './usage/history/history.ts'
import { createUsageRpc } from './usage/rpc.ts'
import { createUsage } from './usage/service.ts'
import { createUserFinder } from './usage/users.ts'
import { startUpkeep } from './platform/upkeep.ts'

export interface CoreDeps {
  readonly log: Log
  readonly metrics: Metrics
  readonly now?: Now
}

const statementTimeoutMs = 10_000
const drainMs = 2_500
const closeMs = 300
const messageMaxBytes = 16 * 1024 * 1024

/** Migrates, wires everything top to bottom, and serves. Rejects with one clear error when it cannot start. */
export async function startCore(config: CoreConfig, { log, metrics, now = systemNow }: CoreDeps) {
  await migrate(config.databaseUrl)
  const pool = createPool({
    url: config.databaseUrl,
    max: config.databasePoolMax,
    name: 'tollgate-core',
    statementTimeoutMs,
  })
  pool.on('error', (error) => log.warn({ err: error }, 'idle database connection lost'))
  const stopping = new AbortController()
  const { issuer, sealingKey, redisUrl, revocationBoundSeconds } = config

  const invalidations = createInvalidations({
    redisUrl,
    tombstoneSeconds: revocationBoundSeconds,
    log,
  })
  const secrets = createSecrets(config.peppers)
  const idempotency = createIdempotency({ pool, sealingKey, now })
  const backend = createBackend(config.backend, { log, metrics })
  const emitter = backend.destinations.length > 0 ? createEmitter() : undefined
  const outbox = createOutbox({ pool, log, metrics, now, destinations: backend.destinations })
  const reconciliation = createReconciliation({ pool, backend, log, metrics, now })
  const ledger = createLedger()
  const plans = createPlans({ ledger })
  const apps = createApps({ pool, plans, secrets, now })
  const accounts = createAccounts({ pool, now, idleSeconds: config.sessionIdleSeconds })
  const management = createManagement({
    pool,
    secrets,
    idempotency,
    invalidations,
    secretOverlapSeconds: config.secretOverlapSeconds,
    now,
  })
  const members = createMembers({ pool, now })
  const catalog = createCatalog({ pool, now })
  const users = createUsers({
    pool,
    plans,
    invalidations,
    log,
    now,
    emitCustomer: emitter?.emitCustomer,
  })
  const keys = createKeys({ pool, users, secrets, idempotency, invalidations, log, now })
  const appKeys = createAppKeys({ pool, secrets, idempotency, invalidations, sealingKey, now })
  const signingKeys = createSigningKeys({ pool, sealingKey, alg: config.tokens.alg, now })
  const rotation = createKeyRotation({
    pool,
    signingKeys,
    tokenTtlSecondsMax: longestTtl(config),
    everyDays: config.signingKeyRotationDays,
    now,
  })
  const jwts = createJwts({ issuer, signingKeys, pool, now })
  const subjects = createSubjects({ jwts, apps, users })
  const tokens = createTokens({ ...config.tokens, jwts, subjects, apps, users, keys })
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
  const logouts = createLogouts({ pool, issuer, signingKeys, users })
  const metering = createMetering({
    config: config.metering,
    pool,
    users,
    ledger,
    invalidations,
    emitter,
    log,
    metrics,
    now,
  })
  const books = createBooks({
    pool,
    now,
    log,
    metrics,
    config: config.books,
    charge: ledger.charge,
    emit: emitter?.emitPriced,
    resolveSubjects: users.resolveSubjects,
    rateMaxAgeSeconds: config.metering.rates.maxAgeSeconds,
    invalidations,
  })
  const usage = createUsage({ pool, users, now })
  const history = createHistory({ pool, users, sealingKey, now })
  const follow = createFollow({
    pool,
    feed: createFeed({ pool, log, metrics }),
    cursors: createCursors(sealingKey),
    now,
    stopping: stopping.signal,
    watchUser: (user, changed) =>
      invalidations.watch(({ kind, id }) => {
        if (kind === 'user' && id === user) changed()
      }),
  })
  const metered = createMetered(backend.requireAnswers)
  const allowances = createAllowances({
    pool,
    ledger,
    users,
    idempotency,
    invalidations,
    countUnpriced: usage.countUnpriced,
    log,
    now,
  })
  const adjustments = createAdjustments({
    pool,
    ledger,
    users,
    idempotency,
    invalidations,
    log,
    now,
  })
  const grants = createGrants({
    config: config.grants,
    invalidations,
    defaultSignerUrl: config.routing.defaultDmzUrl,
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
  const signer = createSigner({
    pool,
    ledger,
    users,
    keys,
    sessions,
    usableRate: metering.usableRate,
    isVoidToken: jwts.isVoidToken,
    now,
  })

  await signingKeys.prepare()
  const serving = createServing({
    authenticator: {
      m2mByBasic: apps.authenticate,
      m2mByToken: tokens.m2mByToken,
      userByToken: tokens.userByToken,
      accountBySession: accounts.bySession,
      memberOf: accounts.memberOf,
    },
    serviceToken: config.serviceToken,
    log,
    metrics,
  })
  const server = new Server({
    'grpc.max_receive_message_length': messageMaxBytes,
    'grpc.max_concurrent_streams': 1_000,
  })
  const identity = createIdentityRpc({
    apps,
    users,
    starterUsdMicros: config.starterUsdMicros,
    revocationBoundSeconds,
    metered,
  })
  const services = [
    serving.bind(AppServiceService, identity.appService),
    serving.bind(CallerServiceService, identity.callerService),
    serving.bind(AccountServiceService, createAccountsRpc({ accounts }).accountService),
    serving.bind(UserServiceService, identity.userService),
    serving.bind(
      ManagementServiceService,
      createManagementRpc({
        apps,
        management,
        members,
        starterUsdMicros: config.starterUsdMicros,
        routing: config.routing,
      }).managementService,
    ),
    serving.bind(CatalogServiceService, createCatalogRpc({ catalog }).catalogService),
    serving.bind(
      KeyServiceService,
      createKeysRpc({ keys, appKeys, revocationBoundSeconds }).keyService,
    ),
    serving.bind(
      AuthorizationServiceService,
      createAuthorizationRpc({ authorizations, logouts }).authorizationService,
    ),
    serving.bind(GrantServiceService, grants.grantService),
    serving.bind(DeviceServiceService, grants.deviceService),
    serving.bind(
      TokenServiceService,
      createTokensRpc({ tokens, signingKeys, rotation }).tokenService,
    ),
    serving.bind(QuarantineServiceService, books.quarantineService),
    serving.bind(BooksServiceService, books.booksService),
    serving.bind(
      AllowanceServiceService,
      createAllowancesRpc({ allowances, adjustments, metered }).allowanceService,
    ),
    serving.bind(MeteringServiceService, createMeteringRpc({ metering }).meteringService),
    serving.bind(OutboxServiceService, createOutboxRpc({ pool, now }).outboxService),
    serving.bind(
      ReconciliationServiceService,
      createReconciliationRpc({ pool, reconciliation }).reconciliationService,
    ),
    serving.bind(
      LossServiceService,
      createLossRpc({ losses: metering.losses, metered }).lossService,
    ),
    serving.bind(
      UsageServiceService,
      createUsageRpc({ usage, history, follow, findUser: createUserFinder(users), metered })
        .usageService,
    ),
    serving.bind(
      SignerServiceService,
      createSignerRpc({ signer, invalidations, stopping: stopping.signal }).signerService,
    ),
  ]
  for (const { definition, implementation } of services)
    server.addService(definition, implementation)
  const health = addHealthAndReflection(server)
  const listening = await listenGrpc(server, config)
  const upkeep = startUpkeep({
    pool,
    ledger,
    idempotency,
    forget: [
      accounts.forgetEnded,
      authorizations.forgetEnded,
      grants.forgetEnded,
      rotation.tend,
      reconciliation.tend,
    ],
    log,
    now,
  })
  await metering.start()
  backend.start()
  outbox.start()
  if (emitter) {
    createBackfill({ pool, log, now })
      .run(stopping.signal)
      .catch((error: unknown) =>
        log.warn(
          { err: error },
          'not all users were told to the metering backend; the next start goes on',
        ),
      )
  }
  books.start()
  health.set(true)

  async function ready(): Promise<Record<string, boolean>> {
    const database = await pool.query('select 1').then(
      () => true,
      () => false,
    )
    return {
      database,
      redis: await invalidations.ready(),
      ...(await metering.ready()),
      ...backend.ready(),
    }
  }

  /** Tells health checks first, lets running calls finish, then closes what they stood on. */
  async function drain(): Promise<void> {
    health.set(false)
    stopping.abort()
    const parts = [metering, books, upkeep, outbox, reconciliation, backend]
    await Promise.race([
      Promise.all([listening.stop(drainMs), ...parts.map((part) => part.stop())]),
      after(drainMs),
    ])
    invalidations.stop()
    // A statement that hangs has its own time limit; nobody waits for it here.
    await Promise.race([pool.end(), after(closeMs)])
  }

  let stopped: Promise<void> | undefined
  const stop = (): Promise<void> => (stopped ??= drain())

  return {
    target: `${config.host === '0.0.0.0' ? '127.0.0.1' : config.host}:${listening.port}`,
    port: listening.port,
    ready,
    stop,
  }
}

/** A retired key is needed as long as the longest token that it may have signed. */
const longestTtl = ({ tokens, grants }: CoreConfig): number =>
  Math.max(
    tokens.userTtlSeconds,
    tokens.machineTtlSeconds,
    grants.loginTtlSeconds,
    grants.signerTtlSeconds,
  )

const after = (milliseconds: number): Promise<void> =>
  sleep(milliseconds, undefined, { ref: false })

export type Core = Awaited<ReturnType<typeof startCore>>
