import { DomainError } from '../../proto/errors.ts'
import type { AppId } from '../platform/ids.ts'
import type { Db, Pool } from '../lib/sql.ts'
import * as store from './range-store.ts'
import type { BookedApp, UserRange } from './types.ts'

/** Goes through apps side by side, and through the users of one in order; never holds more than a page of either. */

const appsAtOnce = 500
const usersAtOnce = 200
const nobody = '00000000-0000-0000-0000-000000000000'

/** Runs `work` for the named app, or for every app, so many at a time. NOT_FOUND for an app that is not there. */
export async function forApps(
  pool: Pool,
  {
    clientId,
    parallel,
    signal,
  }: { clientId: string | undefined; parallel: number; signal: AbortSignal },
  work: (app: BookedApp) => Promise<void>,
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

async function* allApps(pool: Pool): AsyncGenerator<BookedApp, undefined> {
  for (let after: AppId | null = null; ;) {
    const page: BookedApp[] = await store.appsAfter(pool, after, appsAtOnce)
    yield* page
    const last = page.at(-1)
    if (!last || page.length < appsAtOnce) return undefined
    after = last.id
  }
}

/** The users of an app in ranges, each with how many users it holds; together they hold every id there can be. */
export async function* userRanges(
  db: Db,
  appId: AppId,
): AsyncGenerator<UserRange & { users: number }> {
  for (let after = nobody; ;) {
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
