import { readFile, stat } from 'node:fs/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Pool } from 'pg'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createPool } from '../../../core/lib/sql.ts'
import { type TestService, startTestService } from '../../support/deployment/service.ts'
import { readSize } from '../../support/run/sizes.ts'

const seconds = readSize('TEST_FLOOD_SECONDS')
const callers = 32
const MiB = 1024 * 1024

let running: TestService
let database: Pool
beforeAll(async () => {
  // With rate limits and log level info, like a real deployment.
  running = await startTestService({ RATE_LIMITS: 'on', LOG_LEVEL: 'info' })
  database = createPool({
    url: running.env['DATABASE_URL'] ?? '',
    max: 2,
    name: 'test',
    statementTimeoutMs: 60_000,
  })
})
afterAll(async () => {
  await database?.end()
  await running?.stop()
})

async function databaseBytes(): Promise<number> {
  const { rows } = await database.query<{ bytes: string }>(
    'select pg_database_size(current_database()) as bytes',
  )
  return Number(rows[0]?.bytes)
}

interface Shot {
  readonly method: string
  readonly path: string
  readonly body?: string
  readonly headers?: Record<string, string>
}

/**
 * Returns requests to every route of the documents, as an outsider would try them: without
 * credentials, with nonsense, with an app's public id, with made-up credentials.
 */
async function shots(): Promise<Shot[]> {
  const { platformUrl, clientId, m2mClientId } = running.service.quickstart
  const document: { paths: Record<string, object> } = JSON.parse(
    await (await fetch(`${platformUrl}/api/v1/openapi.json`)).text(),
  )
  const guesses = [
    {},
    { authorization: 'Bearer x.y.z' },
    { authorization: `Bearer ${clientId}_svc_ak_${'0'.repeat(49)}` },
    { authorization: `Basic ${btoa(`${m2mClientId}:svc_cs_${'0'.repeat(49)}`)}` },
  ]
  const api = Object.entries(document.paths).flatMap(([path, operations]) =>
    Object.keys(operations).flatMap((method) =>
      guesses.map((headers) => ({
        method: method.toUpperCase(),
        path: path.replace('{clientId}', clientId).replace(/\{[^}]+\}/g, 'x'),
        headers,
        ...(method === 'get' || method === 'head' ? {} : { body: '{}' }),
      })),
    ),
  )
  const form = { 'content-type': 'application/x-www-form-urlencoded' }
  const exchange =
    'grant_type=urn:ietf:params:oauth:grant-type:token-exchange&subject_token=x.y.z&subject_token_type=urn:ietf:params:oauth:token-type:access_token'
  const forms = [
    [
      '/api/v1/oidc/token',
      `grant_type=client_credentials&client_id=${m2mClientId}&client_secret=x`,
    ],
    [
      '/api/v1/oidc/token',
      `grant_type=authorization_code&client_id=${clientId}&code=x&code_verifier=y`,
    ],
    ['/api/v1/oidc/token', `grant_type=refresh_token&client_id=${clientId}&refresh_token=x`],
    ['/api/v1/oidc/token', exchange],
    [`/api/v1/apps/${clientId}/oidc/token`, exchange],
    ['/api/v1/oidc/token/revocation', 'token=x'],
    ['/login', 'email=a@b.example&password=x'],
    ['/reset', 'token=x&password=y'],
  ].map(([path = '', body = '']) => ({ method: 'POST', path, body, headers: form }))
  const pages = ['/', '/login', '/oidc/device?user_code=ABCD', '/nowhere', '/docs', '/errors'].map(
    (path) => ({ method: 'GET', path }),
  )
  return [...api, ...forms, ...pages]
}

async function flood(all: readonly Shot[], until: number): Promise<Map<number, number>> {
  const statuses = new Map<number, number>()
  const { platformUrl } = running.service.quickstart
  let next = 0
  async function caller(): Promise<void> {
    while (performance.now() < until) {
      const {
        method,
        path,
        body,
        headers = {},
      } = all[next++ % all.length] ?? { method: 'GET', path: '/' }
      const answer = await fetch(platformUrl + path, {
        method,
        redirect: 'manual',
        headers: {
          ...(body === undefined ? {} : { 'content-type': 'application/json' }),
          ...headers,
        },
        ...(body === undefined ? {} : { body }),
      })
      await answer.arrayBuffer()
      statuses.set(answer.status, (statuses.get(answer.status) ?? 0) + 1)
    }
  }
  await Promise.all(Array.from({ length: callers }, caller))
  return statuses
}

describe('an anonymous flood', () => {
  it(
    `of ${seconds} s leaves database, log and memory unchanged`,
    async () => {
      const all = await shots()
      // Warm up first, so that pools and caches are not counted.
      await flood(all, performance.now() + 1_000)
      const before = {
        bytes: await databaseBytes(),
        log: (await stat(running.service.logFile)).size,
        heap: process.memoryUsage().rss,
      }
      const began = performance.now()
      const statuses = await flood(all, began + seconds * 1_000)
      const requests = [...statuses.values()].reduce((sum, count) => sum + count, 0)
      await sleep(500)
      expect(requests).toBeGreaterThan(seconds * 20)
      expect([...statuses.keys()].filter((status) => status >= 500)).toEqual([])
      expect((await databaseBytes()) - before.bytes).toBeLessThan(MiB)
      expect(process.memoryUsage().rss - before.heap).toBeLessThan(256 * MiB)
      const { rows } = await database.query<{ refused: number }>(
        "select count(*)::int as refused from audit_log where status = 'refused'",
      )
      expect(rows[0]?.refused).toBe(0)
      // Each kind of refusal logs at most twenty lines a minute.
      const lines = (await readFile(running.service.logFile, 'utf8')).split('\n')
      const kinds = new Map<string, number>()
      for (const line of lines) {
        if (!line.includes('"request"')) continue
        const { route, method, status, reason }: Record<string, unknown> = JSON.parse(line)
        if (Number(status) < 400) continue
        const kind = [route, method, status, reason].join(' ')
        kinds.set(kind, (kinds.get(kind) ?? 0) + 1)
      }
      const minutes = Math.ceil(seconds / 60) + 1
      expect(Math.max(...kinds.values())).toBeLessThanOrEqual(20 * (minutes + 1))
      expect((await fetch(`${running.service.quickstart.adminUrl}/readyz`)).status).toBe(200)
    },
    60_000 + seconds * 2_000,
  )
})
