import { execFileSync } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { basic } from '../../deploy/cli/client.ts'
import { drive } from './drive.ts'
import { requestsOf } from './rest/pair.ts'
import type { Bench, Finding } from './row.ts'
import { type Running, newDataDir, startCommand, startService } from './service.ts'
import { count as inWords } from './table.ts'

const idleMs = 5_000

/** Measures the resident memory of the idle all-in-one service, without its database processes. */
export async function idleMemory(bench: Bench): Promise<Finding[]> {
  const service = await startAllInOne(bench)
  await sleep(idleMs)
  const rss = residentMiB(service.pid)
  await service.stop()
  return [
    {
      name: 'memory, all in one idle',
      unit: 'MB',
      target: { atMost: 250 },
      value: rss,
      spread: null,
      detail: `resident ${idleMs / 1000} s after it was ready, without PostgreSQL`,
    },
  ]
}

/**
 * Measures the resident memory of the all-in-one service after password logins, reads and writes.
 */
export async function busyMemory(bench: Bench): Promise<Finding[]> {
  const [logins, requests] = bench.quick ? [500, 25_000] : [2_000, 100_000]
  const service = await startAllInOne(bench)
  await logIn(service, logins)
  const afterLogins = residentMiB(service.pid)
  await sendRequests(service, requests)
  await sleep(idleMs)
  const rss = residentMiB(service.pid)
  await service.stop()
  return [
    {
      name: `memory, all in one after ${inWords(logins)} logins and ${inWords(requests)} requests`,
      unit: 'MB',
      target: { atMost: 350 },
      value: rss,
      spread: null,
      detail: `resident, without PostgreSQL; ${afterLogins.toFixed(0)} MB after the logins`,
    },
  ]
}

/** As many as core hashes passwords in parallel. */
const loginsAtOnce = 2
const timeoutMs = 10_000

async function logIn({ quickstart }: Running, count: number): Promise<void> {
  const { platformUrl, ownerEmail, ownerPassword } = quickstart
  const form = await fetch(`${platformUrl}/login`, { signal: AbortSignal.timeout(timeoutMs) })
  const [, csrfToken = ''] = /name="csrf_token" value="([^"]*)"/.exec(await form.text()) ?? []
  const cookies = form.headers.getSetCookie().map((cookie) => cookie.split(';')[0])
  const body = new URLSearchParams({
    csrf_token: csrfToken,
    email: ownerEmail,
    password: ownerPassword,
  })
  let left = count
  async function logInInTurn(): Promise<void> {
    while (left-- > 0) {
      const { status } = await fetch(`${platformUrl}/login`, {
        method: 'POST',
        headers: { cookie: cookies.join('; '), origin: platformUrl },
        body,
        redirect: 'manual',
        signal: AbortSignal.timeout(timeoutMs),
      })
      if (status !== 303) throw new Error(`a login was answered with ${status}`)
    }
  }
  await Promise.all(Array.from({ length: loginsAtOnce }, logInInTurn))
}

const userCount = 200
const callers = 64

/** Of ten requests, one creates a user, two add credit, five read a balance and two the key set. */
async function sendRequests({ quickstart }: Running, count: number): Promise<void> {
  const { platformUrl, clientId, m2mClientId, m2mClientSecret } = quickstart
  const port = Number(new URL(platformUrl).port)
  const request = requestsOf(basic(m2mClientId, m2mClientSecret))
  const app = `/api/v1/apps/${clientId}`
  const balance = `/api/v1/builder/apps/${clientId}/usage/balance`
  const users = Array.from({ length: userCount }, () => randomUUID())

  const create = (externalUserId: string): Buffer =>
    request(`POST ${app}/users`, JSON.stringify({ externalUserId }))

  function nth(n: number): Buffer {
    const user = users[n % userCount] ?? ''
    const kind = Math.floor(n / userCount) % 10
    if (kind === 0) return create(randomUUID())
    if (kind > 7) return request('GET /api/v1/oidc/jwks')
    if (kind > 2) return request(`GET ${balance}?externalUserId=${user}`)
    const credit = JSON.stringify({ amountUsdMicros: '1' })
    return request(`POST ${app}/users/${user}/allowances`, credit, randomUUID())
  }

  const send = (requests: Buffer[]): Promise<number> =>
    drive({ port, requests, count: requests.length, connections: callers })
  await send(users.map(create))
  await send(Array.from({ length: count }, (_, n) => nth(n)))
}

const startAllInOne = async (bench: Bench): Promise<Running> =>
  startService(bench, startCommand, { dataDir: await newDataDir(bench) })

function residentMiB(pid: number): number {
  const kib = Number(execFileSync('ps', ['-o', 'rss=', '-p', String(pid)], { encoding: 'utf8' }))
  return kib / 1024
}
