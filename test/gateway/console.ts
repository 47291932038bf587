import { silentLog } from '../../core/lib/log.ts'
import type { OwnSettings } from '../../core/lib/settings/redacted.ts'
import { createMetrics } from '../../core/lib/metrics.ts'
import { startGateway } from '../../gateway/server.ts'
import { serviceToken, startTestCore } from '../core/support.ts'
import type { Person } from '../support/web/people.ts'
import { type Answer, asRecord, documentChecker, documentOf, publicUrl } from './support.ts'

export interface RequestOptions {
  /** Sends this person's session cookie. */
  readonly person?: Person
  readonly authorization?: string
  readonly json?: unknown
  readonly form?: string
  readonly headers?: Readonly<Record<string, string>>
}

/** Starts the gateway with a real core. Checks every answer against the gateway's own document. */
export async function startConsole({
  env,
  settings,
  ...options
}: {
  validateV2?: boolean
  env?: Readonly<Record<string, string>>
  settings?: OwnSettings
} = {}) {
  const test = await startTestCore(env)
  const gateway = await startGateway(
    {
      host: '127.0.0.1',
      platformPort: 0,
      builderPort: 0,
      publicUrl,
      tokenAlg: 'RS256',
      ...options,
      core: { target: test.core.target, token: serviceToken, deadlineMs: 10_000 },
      edge: {
        limits: null,
        redisUrl: undefined,
        trustedProxyHops: 0,
        corsOrigins: [],
        ingestSecret: undefined,
        connections: { max: 10_000, maxPerAddress: null },
      },
    },
    { log: silentLog(), metrics: createMetrics('gateway'), settings },
  )
  const document = await documentOf(gateway.platformUrl, { of: 'console', ...options })
  const check = await documentChecker(document, { strict: true })

  /** Sends a request whose answer is not compared with the public document. */
  const send = (method: string, path: string, request: RequestOptions = {}): Promise<Response> =>
    fetch(gateway.platformUrl + path, { method, redirect: 'manual', ...requestOf(request) })

  async function ask(method: string, path: string, request: RequestOptions = {}): Promise<Answer> {
    const response = await send(method, path, request)
    const text = await response.text()
    const json = /[/+]json/.test(response.headers.get('content-type') ?? '') && text.startsWith('{')
    const answer = {
      status: response.status,
      headers: response.headers,
      text,
      body: json ? asRecord(JSON.parse(text)) : {},
    }
    check({ method, path: new URL(response.url).pathname, answer })
    return answer
  }

  return {
    ...test,
    url: gateway.platformUrl,
    document,
    ask,
    send,
    stop: async () => {
      await gateway.stop()
      await test.stop()
    },
  }
}

export type Console = Awaited<ReturnType<typeof startConsole>>

function requestOf({
  person,
  authorization,
  json,
  form,
  headers = {},
}: RequestOptions): RequestInit {
  const sent = new Headers(person === undefined ? {} : sessionHeaders(person))
  if (authorization !== undefined) sent.set('authorization', authorization)
  if (json !== undefined) sent.set('content-type', 'application/json')
  if (form !== undefined) sent.set('content-type', 'application/x-www-form-urlencoded')
  for (const [name, value] of Object.entries(headers)) {
    if (value === '') sent.delete(name)
    else sent.set(name, value)
  }
  const body = form ?? (json === undefined ? undefined : JSON.stringify(json))
  return { headers: sent, ...(body === undefined ? {} : { body }) }
}

/** Headers that a browser sends from our own pages. */
const sessionHeaders = ({ token, csrf }: Person): Record<string, string> => ({
  cookie: `__Host-tollgate_session=${token}`,
  origin: publicUrl,
  'x-csrf-token': csrf,
})
