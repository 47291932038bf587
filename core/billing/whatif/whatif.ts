import { DomainError } from '../../../proto/errors.ts'
import type { SimulateLedger } from '../../balances/ledger/trial.ts'
import type { EthRate } from '../../lib/money.ts'
import { type Db, tx } from '../../lib/sql.ts'
import { type Clocks, realTime } from '../../shared/clocks/clocks.ts'
import type { AppId, UserId } from '../../shared/ids.ts'
import type { Offers, PlanDraft } from '../../plans/offers/service.ts'
import type { Shared } from '../../shared/shared.ts'
import { type DraftOf, createChoice } from './choice.ts'
import { type WhatIfRange, type WhatIfRequest, parseRequest } from './input.ts'
import * as store from './store.ts'
import { type WhatIfSums, createSums } from './sums.ts'
import { type UserReplay, replayUser } from './user-replay.ts'

export interface WhatIfDeps extends Pick<Shared, 'pool' | 'now'> {
  readonly drafts: Offers['drafts']
  readonly simulateLedger: SimulateLedger
  readonly clocks?: Clocks
}

export interface WhatIfLimits {
  readonly limitSeconds: number
  /** Aborts when the caller no longer waits for the result. */
  readonly signal: AbortSignal
}

export type WhatIfAnswer = WhatIfSums & WhatIfRange

/** Per core: each replay holds a connection and loads a processor. */
const atOnceMax = 2
const ratesMax = 50_000

/** Replays booked tickets against drafts of plans (docs/whatif.md). Writes nothing. */
export function createWhatIf({
  pool,
  drafts: readDrafts,
  simulateLedger,
  clocks = realTime,
  now,
}: WhatIfDeps) {
  let running = 0

  /**
   * Throws REQUEST_INVALID for a faulty request, and when the replay exceeds its time limit;
   * CONFLICT while the app has another replay; UNAVAILABLE while this core runs too many.
   */
  async function simulatePlans(
    app: AppId,
    requestJson: string,
    limits: WhatIfLimits,
  ): Promise<WhatIfAnswer> {
    const request = parseRequest(requestJson)
    if (running >= atOnceMax)
      throw new DomainError('UNAVAILABLE', 'too many what-ifs are running; try again in a minute')
    running += 1
    try {
      const drafts = await readDrafts(app, request.plans)
      return await replay(app, { request, drafts }, limits)
    } finally {
      running -= 1
    }
  }

  async function replay(
    app: AppId,
    { request, drafts }: { readonly request: WhatIfRequest; readonly drafts: PlanDraft[] },
    { limitSeconds, signal }: WhatIfLimits,
  ): Promise<WhatIfAnswer> {
    const { range, assign } = request
    const untilMs = performance.now() + limitSeconds * 1_000
    const requireTime = (): void => {
      if (signal.aborted) throw new DomainError('UNAVAILABLE', 'the caller has disconnected')
      if (performance.now() >= untilMs) throw tooSlow(limitSeconds)
    }
    return tx(pool, async (db) => {
      await store.readOnly(db, limitSeconds * 1_000)
      if (!(await store.takeTurn(db, app)))
        throw new DomainError(
          'CONFLICT',
          'another what-if of this app is running; wait for its response',
        )
      const draftOf = createChoice(assign, { drafts, plans: await store.planNames(db, app) })
      await requireUsers(db, app, request)
      const sums = createSums(drafts)
      const until = untilNow(range, await clocks.timeOf(db, app, now()))
      const replays = createReplays({ app, range, until, draftOf })
      for await (const page of store.ticketPages(db, app, range)) {
        requireTime()
        await replays.addPage(db, page, sums.add)
      }
      replays.end(sums.add)
      return { ...range, ...sums.read() }
    }).catch((error: unknown) => {
      throw isTimeout(error) ? tooSlow(limitSeconds, error) : error
    })
  }

  /** Limits the range, because periods that have not begun include nothing. */
  const untilNow = ({ from, to }: WhatIfRange, at: Date): WhatIfRange => ({
    from,
    to: at < to ? at : to,
  })

  /** Tickets are sorted by user; one user is replayed at a time. */
  function createReplays({
    app,
    range,
    until,
    draftOf,
  }: {
    readonly app: AppId
    readonly range: WhatIfRange
    readonly until: WhatIfRange
    readonly draftOf: DraftOf
  }) {
    const rates = new Map<bigint, EthRate>()
    let current: UserReplay | null = null

    const rateOf = (id: bigint): EthRate => {
      const rate = rates.get(id)
      if (rate === undefined) throw new Error('a ticket without its rate')
      return rate
    }

    async function readRates(db: Db, page: readonly store.BookedTicket[]): Promise<void> {
      const ids = new Set(page.flatMap(({ price }) => (price ? [price.rateId] : [])))
      if (rates.size > ratesMax) rates.clear()
      const missing = [...ids].filter((id) => !rates.has(id))
      if (missing.length === 0) return
      for (const [id, rate] of await store.readRates(db, missing)) rates.set(id, rate)
    }

    async function addPage(
      db: Db,
      page: readonly store.BookedTicket[],
      done: ReturnType<typeof createSums>['add'],
    ): Promise<void> {
      await readRates(db, page)
      const ids = new Set<UserId>(page.map(({ userId }) => userId))
      if (current) ids.delete(current.userId)
      const users = ids.size === 0 ? null : await store.readUsers(db, app, { ids: [...ids], range })
      for (const ticket of page) {
        if (current?.userId !== ticket.userId) {
          end(done)
          const user = users?.get(ticket.userId)
          if (!user) throw new Error(`user ${ticket.userId} has no subscription`)
          current = replayUser({
            simulateLedger,
            appId: app,
            user,
            draft: draftOf(user),
            range: until,
          })
        }
        current.add(ticket, rateOf)
      }
    }

    function end(done: ReturnType<typeof createSums>['add']): void {
      if (current) done(current.end())
      current = null
    }

    return { addPage, end }
  }

  async function requireUsers(db: Db, app: AppId, { assign }: WhatIfRequest): Promise<void> {
    const names = [...(assign?.byUser.keys() ?? [])]
    const unknown = names.length === 0 ? null : await store.unknownUser(db, app, names)
    if (unknown !== null)
      throw new DomainError(
        'REQUEST_INVALID',
        `assign.users names ${JSON.stringify(unknown.slice(0, 64))}, which is not a user of the app`,
      )
  }

  return { simulatePlans }
}

export type WhatIf = ReturnType<typeof createWhatIf>

const tooSlow = (limitSeconds: number, cause?: unknown): DomainError =>
  new DomainError(
    'REQUEST_INVALID',
    `the replay did not end within ${limitSeconds} seconds; request a shorter range`,
    { cause },
  )

/** True for a statement that Postgres cancelled after its time limit. */
const isTimeout = (error: unknown): boolean =>
  error instanceof Error && 'code' in error && error.code === '57014'
