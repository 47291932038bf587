import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { type SeededApp, starterMicros } from './seed.ts'

/** Requests of an app's backend, one after the other, until `stop`. */
export interface Backend {
  stop(): Promise<RestCounts>
}

export interface RestCounts {
  reads: number
  writes: number
  /** Writes that were repeated with the same key after 503, 409 or a broken connection. */
  repeated: number
  /** Requests that failed for good, by what they were. */
  readonly failures: string[]
  /** Users with the credit that they were given, in micro-dollars. */
  readonly credited: ReadonlyMap<string, bigint>
}

const pauseMs = 100
const retryMs = 100
const giveUpMs = 30_000
const failuresMax = 20
const creditMicros = 1_000n

interface Request {
  readonly method: 'GET' | 'POST' | 'DELETE'
  readonly path: string
  readonly json?: object
}

/**
 * Starts a backend that creates users, keys and credits, and reads lists and balances. It repeats a
 * read once, if its kept connection broke, and a write until it has an answer.
 */
export function startBackend(platformUrl: string, app: SeededApp): Backend {
  const credited = new Map<string, bigint>()
  const counts = { reads: 0, writes: 0, repeated: 0, failures: [] as string[], credited }
  const users = `/api/v1/apps/${app.clientId}/users`
  const stopping = new AbortController()

  async function read(path: string): Promise<void> {
    counts.reads++
    const request = { method: 'GET', path } as const
    const answer = (await send(request).catch(() => null)) ?? (await send(request).catch(String))
    fail(request, answer)
  }

  async function write(request: Request): Promise<Readonly<Record<string, unknown>>> {
    counts.writes++
    const key = randomUUID()
    for (const until = Date.now() + giveUpMs; ; await sleep(retryMs)) {
      const answer = await send(request, key).catch(String)
      const again = typeof answer === 'string' || answer.status === 503 || answer.status === 409
      if (!again || Date.now() > until) {
        fail(request, answer)
        const body: Record<string, unknown> =
          typeof answer === 'string' || answer.status >= 300 ? {} : JSON.parse(answer.text || '{}')
        return body
      }
      counts.repeated++
    }
  }

  function fail({ method, path }: Request, answer: Answer | string | null): void {
    if (answer !== null && typeof answer !== 'string' && answer.status < 300) return
    const what = typeof answer === 'string' ? answer : `${answer?.status} ${answer?.text}`
    if (counts.failures.length < failuresMax) counts.failures.push(`${method} ${path}: ${what}`)
  }

  interface Answer {
    readonly status: number
    readonly text: string
  }

  async function send({ method, path, json }: Request, key?: string): Promise<Answer> {
    const response = await fetch(platformUrl + path, {
      method,
      headers: {
        authorization: app.authorization,
        ...(json && { 'content-type': 'application/json' }),
        ...(key !== undefined && { 'idempotency-key': key }),
      },
      body: json ? JSON.stringify(json) : null,
      signal: AbortSignal.timeout(giveUpMs),
    })
    return { status: response.status, text: await response.text() }
  }

  async function runOnce(): Promise<void> {
    const externalUserId = randomUUID()
    const user = `${users}/${externalUserId}`
    await write({ method: 'POST', path: users, json: { externalUserId } })
    for (let credit = 0; credit < 3; credit++) {
      const json = { amountUsdMicros: String(creditMicros) }
      await write({ method: 'POST', path: `${user}/allowances`, json })
      credited.set(externalUserId, (credited.get(externalUserId) ?? 0n) + creditMicros)
      await read(balancePath(app, externalUserId))
      await sleep(pauseMs)
    }
    const { keyId } = await write({ method: 'POST', path: `${user}/keys`, json: {} })
    await read(`${users}?limit=20`)
    await write({ method: 'DELETE', path: `${user}/keys?keyId=${String(keyId)}` })
    await read(`/api/v1/builder/apps/${app.clientId}/usage?groupBy=pipeline_model`)
    await sleep(pauseMs)
  }

  async function run(): Promise<void> {
    while (!stopping.signal.aborted) await runOnce()
  }
  const running = run()
  running.catch(() => {})
  return {
    stop: async () => {
      stopping.abort()
      await running
      return counts
    },
  }
}

const balancePath = ({ clientId }: SeededApp, externalUserId: string): string =>
  `/api/v1/builder/apps/${clientId}/usage/balance?externalUserId=${externalUserId}`

/** Returns the users of whom the balance is not what they were given, with both figures. */
export async function wrongCredits(
  platformUrl: string,
  app: SeededApp,
  credited: ReadonlyMap<string, bigint>,
): Promise<string[]> {
  const wrong: string[] = []
  for (const [externalUserId, micros] of credited) {
    const response = await fetch(platformUrl + balancePath(app, externalUserId), {
      headers: { authorization: app.authorization },
      signal: AbortSignal.timeout(giveUpMs),
    })
    const { balanceUsdMicros }: { balanceUsdMicros?: string } = JSON.parse(await response.text())
    const expected = String(starterMicros + micros)
    if (balanceUsdMicros !== expected)
      wrong.push(`${externalUserId}: ${balanceUsdMicros} instead of ${expected}`)
  }
  return wrong
}
