import { DomainError } from '../../proto/errors.ts'
import type { AppId } from '../shared/ids.ts'
import type { Db, Pool } from '../lib/sql.ts'
import * as store from './store.ts'
import type { AppRef, UserRange } from './types.ts'

/**
 * Iterates over apps in parallel and over the users of an app in order, with one page of each in
 * memory.
 */

const appsAtOnce = 500
const usersAtOnce = 200
const zeroId = '00000000-0000-0000-0000-000000000000'

/**
 * Runs `work` for the named app, or for every app, `parallel` at a time. Throws NOT_FOUND for an
 * unknown app.
 */
export async function forApps(
  pool: Pool,
  {
    clientId,
    parallel,
    signal,
  }: { clientId: string | undefined; parallel: number; signal: AbortSignal },
  work: (app: AppRef) => Promise<void>,
): Promise<void> {
  if (clientId !== undefined) {
    const app = await store.findApp(pool, clientId)
    if (!app) throw new DomainError('NOT_FOUND', 'no app has this client id')
    return work(app)
  }
  const apps = allApps(pool)
  const failed = new AbortController()
  const worker = async (): Promise<void> => {
    for (;;) {
      const { value: app } = await apps.next()
      if (!app || signal.aborted || failed.signal.aborted) return
      await work(app).catch((error: unknown) => {
        failed.abort()
        throw error
      })
    }
  }
  await Promise.all(Array.from({ length: parallel }, worker))
}

async function* allApps(pool: Pool): AsyncGenerator<AppRef, undefined> {
  for (let after: AppId | null = null; ;) {
    const page: AppRef[] = await store.appsAfter(pool, after, appsAtOnce)
    yield* page
    const last = page.at(-1)
    if (!last || page.length < appsAtOnce) return undefined
    after = last.id
  }
}

/**
 * Yields the users of an app in ranges, each with its number of users. Together the ranges cover
 * all possible ids.
 */
export async function* userRanges(
  db: Db,
  appId: AppId,
): AsyncGenerator<UserRange & { users: number }> {
  for (let after = zeroId; ;) {
    const page: string[] = await store.usersAfter(db, { appId, after, limit: usersAtOnce })
    const last = page.at(-1)
    const isEnd = page.length < usersAtOnce || last === undefined
    yield {
      appId,
      after,
      upTo: isEnd ? 'ffffffff-ffff-ffff-ffff-ffffffffffff' : last,
      users: page.length,
    }
    if (isEnd) return
    after = last
  }
}
