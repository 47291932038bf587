import { createEscrow } from '../../../core/allowances/escrow/escrow.ts'
import { createLosses } from '../../../core/allowances/escrow/losses.ts'
import { createRelease } from '../../../core/allowances/escrow/release.ts'
import { createEscrowRpc } from '../../../core/allowances/escrow/rpc.ts'
import { createEscrowService } from '../../../core/allowances/escrow/service.ts'
import { type Ledger, createLedger } from '../../../core/allowances/ledger.ts'
import { silentLog } from '../../../core/lib/log.ts'
import { type UsdAttos, usdAttos } from '../../../core/lib/money.ts'
import { tx } from '../../../core/lib/sql.ts'
import { createBoundRate } from '../../../core/metering/rates/bound-rate.ts'
import { type DatabaseClock, createDatabaseClock } from '../../../core/platform/database-clock.ts'
import { authId } from '../../../core/platform/ids.ts'
import type {
  LendRequest,
  LendResponse,
  ReportRequest,
  ReportResponse,
  ReserveRequest,
  ReserveResponse,
} from '../../../proto/gen/ts-proto/tollgate/allowances/v1/escrow.ts'
import type { Rpc } from '../../../core/rpc/serve.ts'
import { type Database } from './database.ts'
import { type Ingest, createIngest } from './ingest.ts'
import type { Plan } from '../plan.ts'
import type { Mutation } from '../mutations.ts'
import type { Process, Scheduler } from '../scheduler.ts'
import type { Truth } from '../truth.ts'
import { epochMs } from '../virtual-time.ts'
import {
  type World,
  type WorldUser,
  rateGraceSeconds,
  rateMarginPercent,
  rateMaxAgeSeconds,
} from './world.ts'

/** A replica of core: its rules, over the shared database. */
export interface CoreReplica extends Ingest {
  readonly process: Process
  lend(request: LendRequest): Promise<LendResponse>
  reserve(request: ReserveRequest): Promise<ReserveResponse>
  report(request: ReportRequest): Promise<ReportResponse>
  /** Does core's periodic work: gives up what is due, and expires credits. */
  upkeep(): Promise<void>
  open(user: WorldUser): Promise<void>
  grant(user: WorldUser, amount: UsdAttos, featureKey: string | null): Promise<void>
  debit(user: WorldUser, amount: UsdAttos): Promise<void>
}

export interface CoresDeps {
  readonly plan: Plan
  readonly mutation: Mutation
  readonly scheduler: Scheduler
  readonly database: Database
  readonly world: World
  readonly truth: Truth
  /** Sends the recall of a user's leases to every sidecar. */
  readonly recall: (from: Process, userId: string) => void
}

const log = silentLog()
const unmetered = new Proxy({}, { get: () => Object.assign(() => {}, { inc: () => {} }) })

export function createCores(deps: CoresDeps) {
  const { plan, mutation, scheduler, database, world, truth } = deps
  const { lagSeconds, holdMaxSeconds, lostTickets, leaseSeconds } = plan.world
  const { pool, escrowStore, grantingStore, accountStore } = database

  /** Starts a core. Holds are short here, so that a simulation is short, too. */
  function start(process: Process): CoreReplica {
    const time = startClock(process)
    const { now } = time
    const ledger = createLedger({ store: accountStore, escrow: escrowStore })
    const losses = createLosses({
      store: escrowStore,
      insertAdjustment: accountStore.insertAdjustment,
      lostTickets,
    })
    const service = createEscrowService({
      pool,
      escrow: createEscrow({
        store: grantingStore,
        accounts: ledger,
        losses,
        leaseSeconds,
        soldRates: async (_, accounts) =>
          new Map(
            accounts.map(({ userId }) => [
              userId,
              { highest: world.ratioOf(userId), maxPriceWei: null },
            ]),
          ),
      }),
      users: {
        resolveStates,
        admitStates: async (subjects: Parameters<typeof resolveStates>[0]) => ({
          states: await resolveStates(subjects),
          denials: new Map(),
        }),
      },
      boundRate: createBoundRate({
        findRate: async () => world.findRate(),
        now,
        maxAgeSeconds: rateMaxAgeSeconds,
        manualMaxAgeSeconds: rateMaxAgeSeconds,
        marginPercent: rateMarginPercent,
        graceSeconds: rateGraceSeconds,
      }),
      invalidations: { publish: async ({ id }: { id: string }) => deps.recall(process, id) },
      meters: unmetered,
      log,
      time,
    } as never)
    const release = createRelease({
      pool,
      store: escrowStore,
      accounts: ledger,
      losses,
      leaseSeconds,
      lagSeconds,
      holdMaxSeconds,
      time,
      onReleased: () => {},
    })
    const { lend, reserve, report } = createEscrowRpc({
      escrow: service,
      holds: undefined as never,
    }).escrowService
    return {
      process,
      lend: caller(lend),
      reserve: caller(reserve),
      report: caller(report),
      ...createIngest({ database, ledger, world, truth, now }),
      upkeep: async () => {
        await release.round()
        await ledger.sweep(pool, now())
      },
      ...createDesk(ledger, now),
    }
  }

  function startClock(process: Process): DatabaseClock {
    const wall = (): number => epochMs + scheduler.now() + process.skewMs
    const clock =
      mutation.coreClock?.(wall) ??
      createDatabaseClock({
        read: async () => new Date(epochMs + scheduler.now() + database.clock.skewMs),
        mono: () => scheduler.now() - process.suspendedMs,
        wall,
      })
    void clock.measure()
    return clock
  }

  /** Actions of operators, and the opening of accounts. */
  function createDesk(ledger: Ledger, now: () => Date) {
    const open = (user: WorldUser): Promise<void> =>
      tx(pool, (db) => ledger.open(db, [user], now()))

    async function grant(user: WorldUser, amount: UsdAttos, featureKey: string | null) {
      const at = now()
      await tx(pool, async (db) => {
        const locked = await ledger.lock(db, [user], at)
        for (const account of locked)
          ledger.credit(account, { amount, featureKey, source: 'promo' }, at)
        await ledger.save(db, locked, at)
      })
    }

    async function debit(user: WorldUser, amount: UsdAttos): Promise<void> {
      const at = now()
      const adjustment = {
        id: `debit-${at.getTime()}`,
        amount: usdAttos(-amount),
        reason: 'a simulation',
        author: 'an operator',
        eventId: null,
        at,
      }
      await tx(pool, (db) => ledger.adjust(db, { user, adjustment, feature: null }))
    }

    return { open, grant, debit }
  }

  const users = new Map(
    world.users.map((user) => [authId(user.clientId, user.externalUserId), user]),
  )
  async function resolveStates(subjects: readonly { clientId: string; externalUserId: string }[]) {
    return new Map(
      subjects.flatMap(({ clientId, externalUserId }) => {
        const name = authId(clientId, externalUserId)
        const user = users.get(name)
        return user ? [[name, { ...user, status: 'active', tokensValidAfter: null }] as const] : []
      }),
    )
  }

  return { start }
}

const credentials = { authorization: undefined, session: undefined }
const context = { correlationId: 'simulation', signal: new AbortController().signal }
const runtime = { log } as never

const caller =
  <Request, Response>(handler: unknown) =>
  (request: Request): Promise<Response> =>
    (handler as Rpc<Request, Response>).unary({ request, credentials, context }, runtime)
