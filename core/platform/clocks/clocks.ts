import { LRUCache } from 'lru-cache'
import type { Db } from '../../lib/sql.ts'
import type { AppId } from '../ids.ts'
import * as store from './store.ts'
import type { Move } from './store.ts'

/**
 * The clocks of apps (docs/test-clock.md). That of a test app may be ahead of real time, and everything that decides about
 * money of the app goes by it: periods, credits, plans and tickets. Leases, sessions, tokens, limits and the audit log go
 * by real time.
 */
export interface Clocks {
  /** By how many milliseconds the clocks of these apps are ahead; without those that are not. */
  ahead(db: Db, of: Iterable<InApp>): Promise<Ahead>
  /** What an app's clock shows at the real instant `at`. */
  timeOf(db: Db, appId: AppId, at: Date): Promise<Date>
  /** Of those of these apps whose clock was ever moved: all moves, in their order. */
  moves(db: Db, of: Iterable<InApp>): Promise<ReadonlyMap<AppId, readonly Move[]>>
}

export type { Move }

/** How clocks are moved: whoever inserts a move has locked the clock. */
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

/** Later by so many milliseconds. */
export const later = (at: Date, ms: number): Date => (ms === 0 ? at : new Date(at.getTime() + ms))

/**
 * By how much the clock was ahead for a ticket that was signed at `signedMs` and booked at `bookedMs`, both real: as the
 * moves before the earlier of both made it. It depends on nothing that comes later.
 */
export function aheadAt(
  moves: readonly Move[],
  { signedMs, bookedMs }: { readonly signedMs: number; readonly bookedMs: number },
): number {
  const ms = Math.min(signedMs, bookedMs)
  return moves.findLast(({ since }) => since.getTime() < ms)?.aheadMs ?? 0
}

export function createClocks(): Clocks {
  // An app is a test app for ever or never, so this is true for as long as it is kept.
  const kinds = new LRUCache<AppId, boolean>({ max: appsMax })

  async function testApps(db: Db, of: Iterable<InApp>): Promise<AppId[]> {
    const tests = new Set<AppId>()
    const unknown = new Set<AppId>()
    let last: AppId | null = null
    for (const { appId } of of) {
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

  async function ahead(db: Db, of: Iterable<InApp>): Promise<Ahead> {
    const apps = await testApps(db, of)
    return apps.length === 0 ? noneAhead : store.findAhead(db, apps)
  }

  async function timeOf(db: Db, appId: AppId, at: Date): Promise<Date> {
    return later(at, (await ahead(db, [{ appId }])).get(appId) ?? 0)
  }

  async function moves(db: Db, of: Iterable<InApp>): Promise<ReadonlyMap<AppId, readonly Move[]>> {
    const apps = await testApps(db, of)
    return apps.length === 0 ? noMoves : store.listMoves(db, apps)
  }

  return { ahead, timeOf, moves }
}
