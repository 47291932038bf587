import { readFile } from 'node:fs/promises'
import { type IncomingMessage, type ServerResponse, createServer } from 'node:http'
import { join } from 'node:path'
import { type Reply, answerV1, problem, record } from './api-v1.ts'
import { answerV3 } from './api-v3.ts'
import { type FakeEvent, type State, createState } from './state.ts'
import { createContract } from '../../support/web/openapi.ts'

/**
 * Outcome of a request: answered; refused with a status; lost before or after it is processed;
 * processed twice; answered late.
 */
export type Fault =
  | 'none'
  | 'lose request'
  | 'lose answer'
  | 'twice'
  | 'late'
  | 400
  | 401
  | 403
  | 404
  | 429
  | 500
  | 503

export interface FakeRequest {
  readonly method: string
  readonly path: string
  readonly events: readonly FakeEvent[]
}

export interface FakeOpenMeter {
  readonly state: State
  /** Value of OPENMETER_URL for each version of the API. */
  readonly urls: { readonly v1: string; readonly v3: string }
  /** Everything that violated the API documents, in requests and in the fake's own answers. */
  readonly violations: string[]
  readonly requests: FakeRequest[]
  /** Returns the outcome of each request. */
  faults: (request: FakeRequest) => Fault
  /** The only accepted key; null accepts any. */
  apiKey: string | null
  /** Whether it ignores all filters of v3. */
  deafToFilters: boolean
  /** Throws if anything violated the API documents. */
  stop(): Promise<void>
}

const lateMs = 150
const maxBodyBytes = 8 * 1024 * 1024

const contractOf = async (version: string) =>
  createContract(
    JSON.parse(await readFile(join(import.meta.dirname, `${version}.openapi.json`), 'utf8')),
  )
// Compiled once for all fakes of a test file.
const reading = { v1: contractOf('v1'), v3: contractOf('v3') }

/**
 * Starts an OpenMeter that stores events, recognises repeats by source and id, fails on request,
 * and checks every request and answer against OpenMeter's own API documents.
 */
export async function startOpenMeter(): Promise<FakeOpenMeter> {
  const contracts = { v1: await reading.v1, v3: await reading.v3 }
  const server = createServer((request, response) => {
    serve(request, response).catch((error: unknown) => {
      fake.violations.push(`the fake failed: ${String(error)}`)
      response.destroy()
    })
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const address = server.address()
  const origin = `http://127.0.0.1:${typeof address === 'object' ? address?.port : ''}`
  const fake: FakeOpenMeter = {
    state: createState(),
    urls: { v1: origin, v3: `${origin}/api/v3` },
    violations: [],
    requests: [],
    faults: () => 'none',
    apiKey: null,
    deafToFilters: false,
    stop: async () => {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
      if (fake.violations.length > 0)
        throw new Error(`against OpenMeter's documents: ${fake.violations.join('; ')}`)
    },
  }

  async function serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { version, ...seen } = await readRequest(request)
    const { method, path, body } = seen
    const events = eventsOf(body)
    const wrong = contracts[version].checkRequest(seen)
    fake.violations.push(...wrong)
    const noted = { method, path, events }
    fake.requests.push(noted)
    const fault = isAuthorized(request) ? fake.faults(noted) : 401
    if (fault === 'lose request') return void response.destroy()
    const call = { ...seen, body: record(body), events }
    const answer = (): Reply =>
      version === 'v1'
        ? answerV1(fake.state, call)
        : answerV3(fake.state, call, { deafToFilters: fake.deafToFilters })
    const reply = refusalOf(wrong, fault) ?? answer()
    if (fault === 'twice' && wrong.length === 0) answer()
    if (fault === 'lose answer') return void response.destroy()
    if (fault === 'late') await new Promise((resolve) => setTimeout(resolve, lateMs))
    const contentType = reply.status >= 400 ? 'application/problem+json' : 'application/json'
    fake.violations.push(
      ...contracts[version].checkResponse(seen, {
        status: reply.status,
        contentType,
        body: reply.body,
      }),
    )
    if (fault === 429) response.setHeader('retry-after', '0')
    send(response, reply, contentType)
  }

  const isAuthorized = ({ headers }: IncomingMessage): boolean =>
    fake.apiKey === null || headers.authorization === `Bearer ${fake.apiKey}`

  return fake
}

function refusalOf(violations: readonly string[], fault: unknown): Reply | undefined {
  if (violations.length > 0) return problem(400, violations.join('; '))
  return typeof fault === 'number' ? problem(fault, `told to answer ${fault}`) : undefined
}

function send(response: ServerResponse, { status, body }: Reply, contentType: string): void {
  response.writeHead(status, body === undefined ? {} : { 'content-type': contentType })
  response.end(body === undefined ? undefined : JSON.stringify(body))
}

const eventsOf = (parsed: unknown): FakeEvent[] => (Array.isArray(parsed) ? parsed : [])

async function readRequest(request: IncomingMessage) {
  const url = new URL(request.url ?? '/', 'http://openmeter')
  const raw = await readBody(request)
  const body: unknown = raw === '' ? undefined : JSON.parse(raw)
  return {
    version: url.pathname.startsWith('/api/v3/') ? 'v3' : 'v1',
    method: request.method ?? '',
    path: url.pathname.replace(/^\/api\/v3/, ''),
    search: url.searchParams,
    contentType: request.headers['content-type'] ?? '',
    body,
  } as const
}

async function readBody(request: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = []
  let size = 0
  for await (const chunk of request) {
    size += chunk.length
    if (size > maxBodyBytes) throw new Error('a request of more than 8 MiB')
    chunks.push(chunk)
  }
  return Buffer.concat(chunks).toString('utf8')
}
