import { fetchText } from '../../lib/text/fetch.ts'
import type { Log } from '../../lib/log.ts'
import { type Pool, tx } from '../../lib/sql.ts'
import type { Now } from '../../lib/time.ts'
import { parseCatalog } from './document.ts'
import * as store from './entries-store.ts'

const bounds = { timeoutMs: 10_000, maxBytes: 1_048_576 }
const usualMs = 5 * 60_000
/** After a reading that failed. */
const soonMs = 55_000
/** Late tickets of the last day are seen, too. */
const seenMs = 26 * 3_600_000

export interface ReaderDeps {
  readonly pool: Pool
  readonly log: Log
  /** Null when no catalogue is read. */
  readonly url: string | null
  readonly now: Now
}

/** Keeps what the catalogue knows: what CATALOG_URL answers, and what tickets were for. What was read once stays known. */
export function createCatalogReader({ pool, log, url, now }: ReaderDeps) {
  /** Reads the address now. An answer that cannot be used changes nothing but the record of it. */
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
      log.warn({ reason: entries }, 'CATALOG_URL cannot be used; what it answered last stays known')
  }

  /** Reads the address when it is time. Of several cores one reads. */
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

  /** Reads the address and the tickets now, and tells how it went. */
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

  /** Reads the address for the first time. Core does not wait for one that may be away. */
  const start = (): void =>
    void readWhenDue().catch((error: unknown) =>
      log.warn({ err: error }, 'the catalogue was not read; it is tried again in a minute'),
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
