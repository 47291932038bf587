import { Client } from 'pg'
import { parseObject } from '../../lib/json.ts'
import type { Log } from '../../lib/log.ts'
import { type Backoff, backoffMs } from '../../lib/loop.ts'
import { withLivePassword } from '../../lib/settings/database-password.ts'
import { type Reloadable, currentValue } from '../../lib/settings/reloadable.ts'
import { type Now, addSeconds } from '../../lib/time.ts'
import { type Invalidations, parseInvalidation } from '../invalidations.ts'
import { toInvalidation } from './grants.ts'
import * as store from './store.ts'

export interface ListenerDeps {
  /** Address of PostgreSQL itself: a pooler would lose notifications. */
  readonly databaseUrl: Reloadable<string>
  /** Id of this process, used to ignore its own notifications. */
  readonly sender: string
  readonly invalidations: Pick<Invalidations, 'emit'>
  readonly log: Log
  readonly now: Now
}

const connection = { connectionTimeoutMillis: 5_000, query_timeout: 5_000, keepAlive: true }
const pingMs = 10_000
const reconnects: Backoff = { firstMs: 100, lastMs: 5_000 }
// A transaction may commit this long after the instant that it wrote. Also covers small clock
// differences.
const marginSeconds = 60

/**
 * Listens on its own database connection for grants that other cores end, and emits them to the
 * sidecars that watch this core. After a lost connection it reads missed ends from the table.
 */
export function startListener({ databaseUrl, sender, invalidations, log, now }: ListenerDeps) {
  const Connection = withLivePassword(Client, databaseUrl)
  let client: Client | null = null
  let timer: NodeJS.Timeout | undefined
  let stopped = false
  let failures = 0
  let heardUntil = addSeconds(now(), -marginSeconds)

  async function open(): Promise<void> {
    const opening = new Connection({ ...connection, connectionString: currentValue(databaseUrl) })
    client = opening
    opening.on('notification', ({ payload = '' }) => hear(payload))
    opening.once('error', () => reopen(opening))
    opening.once('end', () => reopen(opening))
    await opening.connect()
    await store.listen(opening)
    for (const { id, ends_before: instant } of await store.listEnds(opening, heardUntil))
      invalidations.emit(toInvalidation({ id, ...(instant && { endsBefore: instant }) }))
    failures = 0
  }

  // Detects a silently lost connection before `marginSeconds` have passed.
  function ping(): void {
    const open = client
    open?.query('select 1').catch(() => reopen(open))
  }

  function hear(payload: string): void {
    const message = parseObject(payload)
    const invalidation = message?.['from'] === sender ? null : parseInvalidation(payload)
    if (invalidation) invalidations.emit(invalidation)
  }

  function reopen(broken: Client): void {
    if (broken !== client) return
    client = null
    if (failures === 0) heardUntil = addSeconds(now(), -marginSeconds)
    broken.on('error', () => undefined)
    void broken.end().catch(() => undefined)
    if (stopped) return
    failures++
    timer = setTimeout(connect, backoffMs(failures, reconnects))
    timer.unref()
  }

  function connect(): void {
    open().catch((error: unknown) => {
      log.warn({ err: error }, 'cannot listen to the database for credentials that other cores end')
      if (client) reopen(client)
    })
  }

  async function stop(): Promise<void> {
    stopped = true
    clearTimeout(timer)
    clearInterval(pings)
    await client?.end().catch(() => undefined)
  }

  const pings = setInterval(ping, pingMs)
  pings.unref()
  connect()
  return { stop }
}
