import { LRUCache } from 'lru-cache'
import type { Db } from '../../lib/sql.ts'
import type { AppId } from '../ids.ts'
import * as store from './store.ts'
import type { Move } from './store.ts'

/**
 * The clocks of apps (docs/test-clock.md). A test app's clock may be ahead of real time. Everything
 * that decides about the app's money uses it: periods, credits, plans and tickets. Leases,
 * sessions, tokens, limits and the audit log use real time.
 */
export interface Clocks {
  /** Milliseconds by which the clocks of these apps are ahead. Omits apps at real time. */
  ahead(db: Db, rows: Iterable<InApp>): Promise<Ahead>
  /** The time on an app's clock at the real instant `at`. */
  timeOf(db: Db, appId: AppId, at: Date): Promise<Date>
  /** All moves of these apps' clocks, in order. Omits clocks that were never moved. */
  moves(db: Db, rows: Iterable<InApp>): Promise<ReadonlyMap<AppId, readonly Move[]>>
}

export type { Move }

/** Functions that move clocks. Callers of `insert` must hold the lock. */
export const clockMoves = {
  lock: store.lockClock,
  insert: store.insertMove,
  listAhead: store.listAhead,
}

interface InApp {
  readonly appId: AppId
}

export type Ahead = ReadonlyMap<AppId, number>

const appsMax = 100_000
const noneAhead: Ahead = new Map()
const noMoves: ReadonlyMap<AppId, readonly Move[]> = new Map()

/** All apps at real time. */
export const realTime: Clocks = {
  ahead: async () => noneAhead,
  timeOf: async (_, __, at) => at,
  moves: async () => noMoves,
}

/** The instant `ms` milliseconds later. */
export const later = (at: Date, ms: number): Date => (ms === 0 ? at : new Date(at.getTime() + ms))

/**
 * Milliseconds by which the clock was ahead for a ticket signed at `signedMs` and booked at
 * `bookedMs`, both in real time. Counts only the moves before the earlier of the two, so that later
 * moves do not change it.
 */
export function aheadAt(
  moves: readonly Move[],
  { signedMs, bookedMs }: { readonly signedMs: number; readonly bookedMs: number },
): number {
  const ms = Math.min(signedMs, bookedMs)
  return moves.findLast(({ since }) => since.getTime() < ms)?.aheadMs ?? 0
}

export function createClocks(): Clocks {
  // An app never changes between test and real, so a cached value stays true.
  const kinds = new LRUCache<AppId, boolean>({ max: appsMax })

  async function testApps(db: Db, rows: Iterable<InApp>): Promise<AppId[]> {
    const tests = new Set<AppId>()
    const unknown = new Set<AppId>()
    let last: AppId | null = null
    for (const { appId } of rows) {
      if (appId === last) continue
      last = appId
      const isTest = kinds.get(appId)
      if (isTest === undefined) unknown.add(appId)
      else if (isTest) tests.add(appId)
    }
    if (unknown.size > 0)
      for (const [app, isTest] of await store.findKinds(db, [...unknown])) {
        kinds.set(app, isTest)
        if (isTest) tests.add(app)
      }
    return [...tests]
  }

  async function ahead(db: Db, rows: Iterable<InApp>): Promise<Ahead> {
    const apps = await testApps(db, rows)
    return apps.length === 0 ? noneAhead : store.findAhead(db, apps)
  }

  async function timeOf(db: Db, appId: AppId, at: Date): Promise<Date> {
    return later(at, (await ahead(db, [{ appId }])).get(appId) ?? 0)
  }

  async function moves(
    db: Db,
    rows: Iterable<InApp>,
  ): Promise<ReadonlyMap<AppId, readonly Move[]>> {
    const apps = await testApps(db, rows)
    return apps.length === 0 ? noMoves : store.listMoves(db, apps)
  }

  return { ahead, timeOf, moves }
}
