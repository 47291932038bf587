import http from 'node:http'
import { readMembers, object, text } from './wire/go-json.ts'
import type { HeaderLine } from './wire/go-headers.ts'
import { writeJson } from './wire/go-json.ts'
import type { JsonOut } from './wire/go-json.ts'
import { encodeOrchestrator } from './wire/orchestrator.ts'
import type { Orchestrator } from './wire/orchestrator.ts'
import type { SignedState } from './payment/state.ts'

/** A gateway's request to the signer; everything has a default. */
export type PayRequest = Readonly<{
  /** The state of the previous answer; starts a session if absent. */
  state?: SignedState
  /** Extra lines; a value has one character per byte. */
  headers?: readonly HeaderLine[]
  type?: string
  app?: string
  manifestId?: string
  inPixels?: bigint
  maxPrice?: JsonOut
  /** Replaces members of the double's default orchestrator. */
  orchestrator?: Partial<Orchestrator>
  /** Closes the connection when aborted. */
  signal?: AbortSignal
}>

export type PayResult = Readonly<{
  status: number
  body: string
  headers: Readonly<http.IncomingHttpHeaders>
  /** The state to send with the next call of the session; only with a 200. */
  state?: SignedState
}>

const TIMEOUT_MS = 30_000

// The headers of livepeer-python-gateway.
const SDK_HEADERS: readonly HeaderLine[] = [
  ['Accept-Encoding', 'identity'],
  ['Content-Type', 'application/json'],
  ['User-Agent', 'livepeer-python-gateway/0.1'],
  ['Accept', 'application/json'],
]

function stateIn(body: string): SignedState | undefined {
  const state = object(readMembers(body), 'state')
  if (state === undefined) return undefined
  return { State: text(state, 'State') ?? '', Sig: text(state, 'Sig') ?? '' }
}

/** The JSON body of a payment request, with `orchestrator` in protocol buffers. */
export function payBody(request: PayRequest, orchestrator: Orchestrator): string {
  const { state, manifestId, inPixels, maxPrice } = request
  const info = encodeOrchestrator({ ...orchestrator, ...request.orchestrator })
  return writeJson({
    orchestrator: info.toString('base64'),
    ...(state !== undefined && { state }),
    ...(manifestId !== undefined && { ManifestID: manifestId }),
    app: request.app ?? '',
    ...(inPixels !== undefined && { inPixels }),
    type: request.type ?? '',
    ...(maxPrice !== undefined && { maxPrice }),
  })
}

/** Makes one call of a gateway over a separate connection. Rejects if the connection breaks. */
export function callSigner(
  url: string,
  body: string,
  { headers = [], signal }: Pick<PayRequest, 'headers' | 'signal'>,
): Promise<PayResult> {
  const { host, hostname, port, pathname } = new URL(url)
  const length = Buffer.byteLength(body).toString()
  const lines = [['Host', host], ...SDK_HEADERS, ['Content-Length', length], ...headers]
  return new Promise((resolve, reject) => {
    const request = http.request({
      hostname,
      port,
      path: pathname,
      method: 'POST',
      agent: false,
      setDefaultHeaders: false,
      headers: [...lines, ['Connection', 'close']].flat(),
      signal: AbortSignal.any([AbortSignal.timeout(TIMEOUT_MS), ...(signal ? [signal] : [])]),
    })
    request.on('error', reject)
    request.on('response', (response) => {
      const chunks: Buffer[] = []
      response.on('data', (chunk: Buffer) => chunks.push(chunk))
      response.on('error', reject)
      response.on('end', () => {
        const status = response.statusCode ?? 0
        const answer = Buffer.concat(chunks).toString()
        const state = status === 200 ? stateIn(answer) : undefined
        const result = { status, body: answer, headers: response.headers }
        resolve(state === undefined ? result : { ...result, state })
      })
    })
    // Send bytes: with a string, Node would write header bytes above 0x7f in UTF-8.
    request.end(Buffer.from(body))
  })
}
