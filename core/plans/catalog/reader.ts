import { fetchText } from '../../lib/text/fetch.ts'
import { tx } from '../../lib/sql.ts'
import type { Shared } from '../../shared/shared.ts'
import { parseCatalog } from './document.ts'
import * as store from './entries-store.ts'

const bounds = { timeoutMs: 10_000, maxBytes: 1_048_576 }
const usualMs = 5 * 60_000
/** Time until the next try after a failed read. */
const soonMs = 55_000
/** More than a day, so that late tickets are included. */
const seenMs = 26 * 3_600_000

export interface ReaderDeps extends Pick<Shared, 'pool' | 'log' | 'now'> {
  /** Null when no catalogue is configured. */
  readonly url: string | null
}

/**
 * Keeps the catalogue up to date, from CATALOG_URL and from tickets. A failed read keeps the
 * entries of the last success.
 */
export function createCatalogReader({ pool, log, url, now }: ReaderDeps) {
  /** Reads the address now. An unusable response is recorded but changes no entries. */
  async function read(address: string): Promise<void> {
    const triedAt = now()
    const entries = await fetchText(address, bounds)
      .then(parseCatalog)
      .catch((error: unknown) => reasonOf(error))
    await tx(pool, async (db) => {
      if (typeof entries === 'string')
        return store.saveRead(db, address, { readAt: null, triedAt, error: entries })
      await store.replaceEntries(db, 'url', { entries, at: triedAt })
      return store.saveRead(db, address, { readAt: triedAt, triedAt, error: null })
    })
    if (typeof entries === 'string')
      log.warn({ reason: entries }, 'CATALOG_URL cannot be used; its last answer stays in use')
  }

  /** Reads the address when due. Only one of several cores reads it. */
  async function readWhenDue(): Promise<void> {
    if (url === null) return
    const at = now()
    const before = (ms: number) => new Date(at.getTime() - ms)
    const due = { at, usual: before(usualMs), soon: before(soonMs) }
    if (await store.claimRead(pool, url, due)) await read(url)
  }

  const noteSeen = (): Promise<void> => {
    const at = now()
    return store.noteAllSeen(pool, { since: new Date(at.getTime() - seenMs), at })
  }

  /** Reads the address and the tickets now, and returns the result. */
  async function refresh(): Promise<store.CatalogRead | null> {
    await noteSeen()
    if (url === null) return null
    await read(url)
    return store.findRead(pool, url)
  }

  let seenAt = 0
  async function upkeep(): Promise<void> {
    await readWhenDue()
    const time = now().getTime()
    if (time - seenAt < usualMs) return
    seenAt = time
    await noteSeen()
  }

  /** Starts the first read without waiting for it, because the address may be unavailable. */
  const start = (): void =>
    void readWhenDue().catch((error: unknown) =>
      log.warn({ err: error }, 'the catalogue was not read; the next attempt is in a minute'),
    )

  return { refresh, start, upkeep }
}

export type CatalogReader = ReturnType<typeof createCatalogReader>

const reasonMax = 300

function reasonOf(error: unknown): string {
  const { message, cause } = error instanceof Error ? error : new Error(String(error))
  const why = cause instanceof Error && message === 'fetch failed' ? cause.message : message
  return why.slice(0, reasonMax)
}
