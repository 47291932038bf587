import { Pool } from 'pg'
import { basic } from '../../../deploy/cli/client.ts'
import { type Helper, startHelper } from '../helper.ts'
import type { Bench } from '../row.ts'
import { newDataDir, startCommand, startService } from '../service.ts'

const userCount = 200

/** The all-in-one service and a bare fastify on the same database. */
export interface RestPair {
  readonly port: number
  readonly adminUrl: string
  readonly clientId: string
  readonly bare: Helper
  /**
   * External ids of the service's users; `bareUsers` are our ids of users that only the bare server
   * changes.
   */
  readonly users: readonly string[]
  readonly bareUsers: readonly string[]
  /** Returns a complete HTTP request with the app's credential. */
  request(line: string, body?: string, idempotencyKey?: string): Buffer
}

const pairs = new WeakMap<Bench, Promise<RestPair>>()

/** Returns the pair of this run; the first call starts it. */
export function openRest(bench: Bench): Promise<RestPair> {
  const pair = pairs.get(bench) ?? start(bench)
  pairs.set(bench, pair)
  return pair
}

async function start(bench: Bench): Promise<RestPair> {
  const databaseUrl = await (await bench.server()).create()
  const { quickstart } = await startService(bench, startCommand, {
    dataDir: await newDataDir(bench),
    databaseUrl,
  })
  const { platformUrl, adminUrl, clientId, m2mClientId, m2mClientSecret } = quickstart
  const port = Number(new URL(platformUrl).port)
  const authorization = basic(m2mClientId, m2mClientSecret)
  const post = async (path: string, body: object): Promise<void> => {
    const response = await fetch(`${platformUrl}/api/v1/apps/${clientId}${path}`, {
      method: 'POST',
      headers: { authorization, 'content-type': 'application/json', 'idempotency-key': path },
      body: JSON.stringify(body),
      signal: AbortSignal.timeout(10_000),
    })
    if (!response.ok) throw new Error(`${path}: ${await response.text()}`)
  }
  const newUsers = async (prefix: string, count: number): Promise<string[]> => {
    const names = Array.from({ length: count }, (_, i) => `${prefix}-${i}`)
    for (const externalUserId of names) await post('/users', { externalUserId })
    return names
  }
  const users = await newUsers('user', userCount)
  await newUsers('bare', userCount)
  await post('/users/bare-0/allowances', { amountUsdMicros: '1' })
  await post('/users/bare-0/keys', { label: 'bench' })
  const { appId, ids } = await readIds(databaseUrl, 'bare-%')
  const bare = await startHelper({
    program: 'rest/bare-server.ts',
    args: [databaseUrl, appId, ids[0] ?? ''],
  })
  bench.defer(bare.stop)
  return {
    port,
    adminUrl,
    clientId,
    bare,
    users,
    bareUsers: ids,
    request: requestsOf(authorization),
  }
}

async function readIds(url: string, pattern: string): Promise<{ appId: string; ids: string[] }> {
  const pool = new Pool({ connectionString: url, max: 1 })
  const { rows } = await pool.query<{ app_id: string; id: string }>(
    `select app_id, id from end_users where external_user_id like $1 order by created_at, id`,
    [pattern],
  )
  await pool.end()
  return { appId: rows[0]?.app_id ?? '', ids: rows.map(({ id }) => id) }
}

/** Returns a function that builds complete HTTP requests with this Authorization header. */
export function requestsOf(authorization: string): RestPair['request'] {
  return (line, body = '', idempotencyKey) => {
    const key = idempotencyKey === undefined ? '' : `Idempotency-Key: ${idempotencyKey}\r\n`
    const type = body === '' ? '' : 'Content-Type: application/json\r\n'
    const length = line.startsWith('GET') ? '' : `Content-Length: ${Buffer.byteLength(body)}\r\n`
    return Buffer.from(
      `${line} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: ${authorization}\r\n${key}${type}${length}\r\n${body}`,
    )
  }
}
