import { Resolver, lookup } from 'node:dns/promises'
import { type IncomingMessage, request as requestHttp } from 'node:http'
import { request as requestHttps } from 'node:https'
import { isIP } from 'node:net'
import { readBounded } from '../text/fetch.ts'
import { type OutboundAllowance, isListed, isLoopback, isPublicAddress } from './addresses.ts'

export interface OutboundOptions {
  readonly allow: OutboundAllowance
  /** Returns the addresses of a host name. */
  readonly resolve?: (host: string) => Promise<readonly string[]>
  readonly timeoutMs?: number
}

const defaultTimeoutMs = 10_000
const maxBytes = 64 * 1024

/** A request with a body. */
export interface OutboundPost {
  readonly headers: Readonly<Record<string, string>>
  readonly body: string
  /** Aborts the request. */
  readonly signal?: AbortSignal
}

export interface OutboundAnswer {
  readonly status: number
  readonly text: string
}

/**
 * Sends requests to addresses that a tenant chose (docs/decisions/50.md): https only, no redirects,
 * 10 s, 64 KiB. The name is resolved once and the connection goes to that address, which must be
 * public unless OUTBOUND_ALLOW lists it.
 */
export function createOutbound({ allow, resolve, timeoutMs = defaultTimeoutMs }: OutboundOptions) {
  const addressesOf = resolve ?? ((host: string) => resolveHost(host, allow))

  /**
   * Fetches the text at `address`. Rejects with the reason in one line, without any text from the
   * host.
   */
  async function fetchText(address: string): Promise<string> {
    const { text } = await exchange(address, getJson)
    return text
  }

  /**
   * Posts to `address` and returns the answer, whatever its status; a redirect is not followed.
   * Rejects like `fetchText` if there is no complete answer.
   */
  const post = (
    address: string,
    { headers, body, signal }: OutboundPost,
  ): Promise<OutboundAnswer> => exchange(address, { method: 'POST', headers, body, signal })

  async function exchange(address: string, request: Outgoing): Promise<OutboundAnswer> {
    const url = parseTarget(address)
    const timeout = AbortSignal.timeout(timeoutMs)
    const signal = request.signal ? AbortSignal.any([timeout, request.signal]) : timeout
    let isPublic = true
    try {
      const target = await within(signal, chooseAddress(url))
      isPublic = isPublicAddress(target)
      return await read(await send(url, target, { ...request, signal }), request)
    } catch (error) {
      if (error instanceof AnswerFault) throw error
      throw new Error(faultText(error, { isPublic, signal: timeout }), { cause: error })
    }
  }

  /**
   * Throws the reason why no request may be sent to `address`, as far as it shows without resolving
   * its name.
   */
  function requireTarget(address: string): void {
    const url = parseTarget(address)
    const host = hostOf(url)
    if (isIP(host) !== 0) return requireAllowed(url, { host, address: host })
    if (url.protocol !== 'https:' && !allow.hosts.has(host) && host !== 'localhost')
      throw new Error('must be an https URL')
  }

  /**
   * Every fault of a host that is not public gets the same text, because a refusal, a time-out or
   * another protocol would reveal open ports.
   */
  function faultText(
    error: unknown,
    { isPublic, signal }: { isPublic: boolean; signal: AbortSignal },
  ): string {
    if (!isPublic) return 'cannot be reached'
    if (signal.aborted) return `did not answer within ${timeoutMs / 1000} s`
    return error instanceof Error ? error.message : 'cannot be reached'
  }

  async function chooseAddress(url: URL): Promise<string> {
    const host = hostOf(url)
    const addresses = isIP(host) === 0 ? await addressesOf(host) : [host]
    // Check every address: a name that mixes good and bad addresses is an attack.
    for (const address of addresses) requireAllowed(url, { host, address })
    const [first] = addresses
    if (first === undefined) throw new Error('has no address')
    return first
  }

  function requireAllowed(url: URL, at: { host: string; address: string }): void {
    const listed = isListed(allow, at)
    if (!listed && !isPublicAddress(at.address))
      throw new Error('is not a public address; the operator lists others in OUTBOUND_ALLOW')
    if (url.protocol !== 'https:' && !(listed && isLoopback(at.address)))
      throw new Error('must be reached by https')
  }

  return { fetchText, post, requireTarget }
}

export type Outbound = ReturnType<typeof createOutbound>

interface Outgoing {
  readonly method: 'GET' | 'POST'
  readonly headers: Readonly<Record<string, string>>
  readonly body?: string
  readonly signal?: AbortSignal | undefined
  /** The only usable status. By default the caller handles each. */
  readonly expected?: number
}

const accept = 'application/json'
const getJson: Outgoing = { method: 'GET', headers: { accept }, expected: 200 }

/** A valid HTTP response that cannot be used. */
class AnswerFault extends Error {}

const hostOf = (url: URL): string => url.hostname.replace(/^\[|\]$/g, '').toLowerCase()

function parseTarget(address: string): URL {
  if (!URL.canParse(address)) throw new Error('is not a URL')
  const url = new URL(address)
  if (url.protocol !== 'https:' && url.protocol !== 'http:') throw new Error('must be an https URL')
  if (url.username !== '' || url.password !== '') throw new Error('must hold no credentials')
  return url
}

// The system's resolver reads the hosts file and blocks one of few threads until it answers, so
// only hosts that the operator listed use it.
async function resolveHost(host: string, allow: OutboundAllowance): Promise<string[]> {
  if (allow.hosts.has(host) || host === 'localhost')
    return (await lookup(host, { all: true })).map(({ address }) => address)
  const resolver = new Resolver({ timeout: 2_000, tries: 2 })
  const answers = await Promise.allSettled([resolver.resolve4(host), resolver.resolve6(host)])
  const addresses = answers.flatMap((answer) => (answer.status === 'fulfilled' ? answer.value : []))
  if (addresses.length === 0) throw new Error('has a name that cannot be resolved now')
  return addresses
}

async function within<T>(signal: AbortSignal, work: Promise<T>): Promise<T> {
  const { promise, reject } = Promise.withResolvers<never>()
  const onAbort = (): void => reject(new Error('took too long'))
  signal.addEventListener('abort', onAbort)
  try {
    return await Promise.race([work, promise])
  } finally {
    signal.removeEventListener('abort', onAbort)
  }
}

async function read(
  response: IncomingMessage,
  { expected }: Pick<Outgoing, 'expected'>,
): Promise<OutboundAnswer> {
  const status = response.statusCode ?? 0
  try {
    if (expected !== undefined && status !== expected) throw new AnswerFault(`answered ${status}`)
    const text = await readBounded(response, maxBytes)
    if (text === null) throw new AnswerFault(`answered more than ${maxBytes} bytes`)
    return { status, text }
  } finally {
    response.destroy()
  }
}

/**
 * Connects only to `address`, even if the name resolves to another address by then. TLS still
 * checks the name.
 */
async function send(
  url: URL,
  address: string,
  { method, headers, body, signal }: Outgoing,
): Promise<IncomingMessage> {
  const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>()
  const open = url.protocol === 'https:' ? requestHttps : requestHttp
  const family = isIP(address)
  const outgoing = open(url, {
    method,
    signal,
    agent: false,
    headers: { ...headers, 'accept-encoding': 'identity' },
    lookup: (_host, options, done) => {
      if (options.all === true) done(null, [{ address, family }])
      else done(null, address, family)
    },
  })
  outgoing.once('response', resolve)
  outgoing.on('error', (error: NodeJS.ErrnoException) =>
    reject(new Error(`cannot be reached (${error.code ?? 'failed'})`, { cause: error })),
  )
  outgoing.end(body)
  return promise
}
