import { type Db, tx } from '../../lib/sql.ts'
import { addSeconds } from '../../lib/time.ts'
import type { AppId } from '../../shared/ids.ts'
import type { PriceReads } from '../../plans/prices/chain.ts'
import type { TokensApi } from '../../tokens/module.ts'
import { type Link, findHead, linkToFollow, saveHead } from '../heads-store.ts'
import { holdArchive } from '../store.ts'
import type { AppRef } from '../types.ts'
import type { Shared } from '../../shared/shared.ts'
import { insertChunk } from './chunk-store.ts'
import * as store from './store.ts'
import type { Chunk } from './chunk-store.ts'
import { type Day, type RootRow, type Window, findLink } from './store.ts'
import { cutsDue } from './test-days.ts'
import { type TicketTree, buildTree } from './tree.ts'

export interface RootsDeps extends Pick<Shared, 'pool' | 'now' | 'log'> {
  readonly issuer: string
  readonly signStatement: TokensApi['signStatement']
  readonly prices: Pick<PriceReads, 'findHead'>
}

const appsAtOnce = 100
const daysAtOnce = 100
const daySeconds = 86_400

/** Creates daily roots over the tickets of apps (docs/receipts.md, "Daily root"). */
export function createRoots({ pool, now, log, issuer, signStatement, prices }: RootsDeps) {
  /**
   * Cuts the day that has ended, unless it is cut already. Roots begin after the very first cut.
   */
  async function cut(): Promise<void> {
    const cutAt = now()
    const day = dayOf(addSeconds(cutAt, -daySeconds))
    await tx(pool, async (db) => {
      await store.lockCuts(db)
      await store.insertCut(db, { day, cutAt })
    })
  }

  /**
   * Cuts the day that has ended and creates missing roots, in order of days, so that each root
   * names the previous one. Only one core builds at a time. A killed core leaves complete roots
   * only; another core continues.
   */
  async function build(signal: AbortSignal): Promise<void> {
    await cutTestDays(signal)
    await cut()
    const windows = await store.windowsToBuild(pool, daysAtOnce)
    for (const window of windows) if (!(await buildDay(window, signal))) return
    // The own days of a test app come after its days in common with all apps.
    if (windows.length < daysAtOnce) await buildTestDays(signal)
  }

  /** Cuts the days of test apps that have ended by their clocks. */
  async function cutTestDays(signal: AbortSignal): Promise<void> {
    for (const app of await store.appsWithMoves(pool)) {
      if (signal.aborted) return
      await tx(pool, async (db) => {
        await store.lockCuts(db)
        const last = await store.findLastCut(db, app)
        const due = last ? cutsDue(last, await store.listMoves(db, app), now()) : []
        for (const cut of due) await store.insertTestCut(db, app, cut)
      })
    }
  }

  /** Builds the days of each test app in order. After a failure, continues with the next app. */
  async function buildTestDays(signal: AbortSignal): Promise<void> {
    const failed = new Set<AppId>()
    for (const { app, window } of await store.testWindowsToBuild(pool, daysAtOnce)) {
      if (failed.has(app.id)) continue
      try {
        if (signal.aborted || !(await buildRoot(app, { window, isOwn: true }, signal))) return
        await store.markTestDayBuilt(pool, { app: app.id, day: window.day }, now())
      } catch (error) {
        if (signal.aborted) throw error
        failed.add(app.id)
        log.warn({ err: error, appId: app.id, day: window.day }, 'a root of a test app failed')
      }
    }
  }

  /** Returns false when roots of the day are still missing. */
  async function buildDay(window: Window, signal: AbortSignal): Promise<boolean> {
    for (;;) {
      const apps = await store.appsWithoutRoot(pool, window, { onlyApp: null, limit: appsAtOnce })
      for (const app of apps)
        if (signal.aborted || !(await buildRoot(app, { window, isOwn: false }, signal)))
          return false
      if (apps.length > 0) continue
      await store.markBuilt(pool, window.day, now())
      return true
    }
  }

  /** Returns false when another core builds, or this one must stop. */
  const buildRoot = (
    app: AppRef,
    { window, isOwn }: { readonly window: Window; readonly isOwn: boolean },
    signal: AbortSignal,
  ): Promise<boolean> =>
    tx(pool, async (db) => {
      await holdArchive(db)
      if (!(await store.tryBuilding(db))) return false
      // Another core may have built it since.
      const [missing] = await store.appsWithoutRoot(db, window, {
        onlyApp: app.id,
        limit: 1,
        isOwn,
      })
      if (!missing) return true
      const { day } = window
      const onChunk = (chunk: Chunk) => insertChunk(db, { app: app.id, day }, chunk)
      const tree = await buildTree(db, { app, window, signal, onChunk })
      // Roll back the written chunks.
      if (!tree) throw new Error('core stopped during the creation of a root')
      refuseShort(app, day, tree)
      await insertRoot(db, app, { window, tree })
      return true
    })

  async function insertRoot(
    db: Db,
    app: AppRef,
    { window: { day, cutAt }, tree: { treeSize, rootHash } }: { window: Window; tree: TicketTree },
  ): Promise<void> {
    const last = await store.rootBefore(db, app.id, day)
    const previous = await linkToFollow(db, app.id, store.readChain(db, app.id, last))
    const { jws: statement, jwk } = await signStatement('receipt-root', {
      iss: issuer,
      iat: Math.floor(now().getTime() / 1000),
      clientId: app.clientId,
      day,
      cutAt: cutAt.toISOString(),
      treeSize,
      rootHash: rootHash.toString('hex'),
      previous: previous && previous.hash,
      ...(await endsOf(db, app.id)),
    })
    const root: RootRow = { day, treeSize, rootHash, statement, jwk, createdAt: now() }
    await store.insertRoot(db, app.id, root)
    await saveHead(db, app.id, { kind: 'root', ...findLink(root) })
    log.info(
      { appId: app.id, day, treeSize, rootHash: rootHash.toString('hex') },
      'the tickets of a day have their root',
    )
  }

  /**
   * Returns the ends of the app's other chains. The root signs them, so that `verify` and any copy
   * of the root reveal a lost end.
   */
  async function endsOf(db: Db, app: AppId): Promise<SignedEnds> {
    const checkpoint = await findHead(db, app, 'checkpoint')
    const price = await prices.findHead(db, app)
    return { checkpoint: claimOf(checkpoint), prices: claimOf(price) }
  }

  return { cut, build, unbuiltSince: () => store.unbuiltSince(pool, now()) }
}

export type Roots = ReturnType<typeof createRoots>

/**
 * Throws when charges cover more tickets than exist: a root over fewer tickets could never be
 * corrected.
 */
function refuseShort(
  { clientId }: AppRef,
  day: Day,
  { treeSize, charged }: Pick<TicketTree, 'treeSize' | 'charged'>,
): void {
  if (treeSize < charged)
    throw new Error(
      `${charged - treeSize} tickets of ${clientId} that were booked on ${day} are missing; restore archived ones with \`tollgate import\`, and the root is created`,
    )
}

const dayOf = (instant: Date): Day => instant.toISOString().slice(0, 10)

/** Claims of a root; null if the app has no such chain. */
interface SignedEnds {
  readonly checkpoint: EndClaim | null
  readonly prices: EndClaim | null
}

export interface EndClaim {
  readonly number: string
  readonly hash: string
}

const claimOf = (link: Link | null): EndClaim | null =>
  link && { number: String(link.number), hash: link.hash }
