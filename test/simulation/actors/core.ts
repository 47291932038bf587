import type { Account } from '../../../core/balances/accounts/account.ts'
import { debt } from '../../../core/balances/accounts/credit-line.ts'
import { createEscrow } from '../../../core/balances/escrow/escrow.ts'
import { createLosses } from '../../../core/balances/escrow/losses.ts'
import { createOwnerRecalls } from '../../../core/balances/escrow/owner-recalls.ts'
import { createRelease } from '../../../core/balances/escrow/release.ts'
import { createEscrowRpc } from '../../../core/balances/escrow/rpc.ts'
import { createEscrowService } from '../../../core/balances/escrow/service.ts'
import { type Ledger, createLedger } from '../../../core/balances/ledger/ledger.ts'
import { silentLog } from '../../../core/lib/log.ts'
import { type UsdAttos, usdAttos } from '../../../core/lib/money.ts'
import { type Db, tx } from '../../../core/lib/sql.ts'
import { createBoundRate } from '../../../core/metering/rates/bound-rate.ts'
import { type DatabaseClock, createDatabaseClock } from '../../../core/shared/database-clock.ts'
import { authId } from '../../../core/shared/ids.ts'
import type {
  LendRequest,
  LendResponse,
  ReportRequest,
  ReportResponse,
  ReserveRequest,
  ReserveResponse,
} from '../../../proto/gen/ts-proto/tollgate/balances/v1/escrow.ts'
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
  /** Recalls the leases of users whose app's owner lost money. */
  recallForOwners(): Promise<void>
  open(user: WorldUser): Promise<void>
  grant(user: WorldUser, amount: UsdAttos, featureKey: string | null): Promise<void>
  debit(user: WorldUser, amount: UsdAttos): Promise<void>
  /** Sets the ceiling of a user's debt; null if the card is lost. */
  limitDebt(user: WorldUser, ceiling: UsdAttos | null): Promise<void>
  /** Collects a share of the debt in percent. */
  collect(user: WorldUser, percent: number): Promise<void>
  /** Returns a share of what was collected in percent. */
  refund(user: WorldUser, percent: number): Promise<void>
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
  /** Sends the recall of the leases of an app's users to every sidecar. */
  readonly recallApp: (from: Process, appId: string) => void
}

interface Change {
  readonly ceiling?: bigint
  readonly collected?: bigint
  readonly isRecalled: boolean
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
    const ledger = createLedger({
      store: accountStore,
      escrow: escrowStore,
      findPayingOwners: async (_, apps) =>
        new Map(
          apps.flatMap((app) => {
            const payer = database.payers.get(app)
            return payer ? [[app, payer.owner] as const] : []
          }),
        ),
      // Events are at most as late as core expects, unless a fault delays them.
      bounding: {
        store: database.exposureStore,
        horizonSeconds: leaseSeconds + 10 + lagSeconds,
      },
    })
    const losses = createLosses({
      store: escrowStore,
      insertAdjustment: accountStore.insertAdjustment,
      lostTickets,
    })
    const escrow = createEscrow({
      store: grantingStore,
      accounts: ledger,
      losses,
      leaseSeconds,
      exposures: ledger.exposures,
      soldRates: async (_, accounts) =>
        new Map(
          accounts.map(({ userId }) => [
            userId,
            { highest: world.ratioOf(userId), maxPriceWei: null },
          ]),
        ),
    })
    const service = createEscrowService({
      pool,
      escrow,
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
    const ownerRecalls = createOwnerRecalls({
      pool,
      ownerLeases: database.ownerLeases,
      exposures: ledger.exposures,
      recall: escrow.recall,
      invalidations: { publish: async ({ id }) => deps.recallApp(process, id) },
      meters: unmetered as never,
      log,
      time,
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
      recallForOwners: ownerRecalls.round,
      ...createDesk(ledger, { now, process }),
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
  function createDesk(ledger: Ledger, { now, process }: { now: () => Date; process: Process }) {
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
      const { account, overage } = await tx(pool, (db) =>
        ledger.adjust(db, { user, adjustment, feature: null }),
      )
      const held = account.lent + account.pending
      truth.changeLine(user.userId, { account, overage, held, now: scheduler.now() })
      database.touch(user.userId)
    }

    /** Changes a locked account, and publishes a recall of its leases. */
    async function change(
      user: WorldUser,
      act: (db: Db, account: Account, at: Date) => Promise<Change | null>,
    ): Promise<void> {
      const at = now()
      const done = await tx(pool, async (db) => {
        const [account] = await ledger.lock(db, [user], at)
        const change = account && (await act(db, account, at))
        if (!account || !change) return null
        await ledger.save(db, [account], at)
        const isOwner = user.userId === world.owner?.userId
        const held = isOwner
          ? await database.countHeld(db, user, at)
          : account.lent + account.pending
        return { account, change, held }
      })
      if (!done) return
      const { account, change, held } = done
      truth.changeLine(user.userId, { account, ...change, held, now: scheduler.now() })
      database.touch(user.userId)
      if (change.isRecalled) deps.recall(process, user.userId)
    }

    const limitDebt = (user: WorldUser, ceiling: UsdAttos | null): Promise<void> =>
      change(user, async (db, account, at) => {
        const amount = ceiling ?? usdAttos(0n)
        const next = { amount, lacksCard: ceiling === null }
        const isRecalled = await ledger.setCeiling(db, account, { ceiling: next, at })
        return { ceiling: amount, isRecalled }
      })

    const pay = (user: WorldUser, amountOf: (account: Account) => bigint): Promise<void> =>
      change(user, async (db, account, at) => {
        const amount = usdAttos(amountOf(account))
        if (amount === 0n) return null
        const payment = { amount, causeId: `payment-${at.getTime()}`, at }
        return { collected: amount, isRecalled: await ledger.collect(db, account, payment) }
      })

    const collect = (user: WorldUser, percent: number): Promise<void> =>
      pay(user, (account) => {
        const owed = debt(account)
        return owed > 0n ? (owed * BigInt(percent)) / 100n : 0n
      })

    // By the simulation's own count, because core's is tested.
    const refund = (user: WorldUser, percent: number): Promise<void> =>
      pay(user, () => (truth.truthOf(user.userId).collected * -BigInt(percent)) / 100n)

    return { open, grant, debit, limitDebt, collect, refund }
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

const credentials = {
  authorization: undefined,
  session: undefined,
  self: undefined,
  operator: undefined,
  isOperator: false,
}
const context = { correlationId: 'simulation', signal: new AbortController().signal }
const runtime = { log } as never

const caller =
  <Request, Response>(handler: unknown) =>
  (request: Request): Promise<Response> =>
    (handler as Rpc<Request, Response>).unary({ request, credentials, context }, runtime)
