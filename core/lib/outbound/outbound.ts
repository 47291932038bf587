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

/**
 * Fetches from addresses that a tenant chose (docs/decisions/50.md): https only, no redirects, 10
 * s, 64 KiB. The name is resolved once and the connection goes to that address, which must be
 * public unless OUTBOUND_ALLOW lists it.
 */
export function createOutbound({ allow, resolve, timeoutMs = defaultTimeoutMs }: OutboundOptions) {
  const addressesOf = resolve ?? ((host: string) => resolveHost(host, allow))

  /**
   * Fetches the text at `address`. Rejects with the reason in one line, without any text from the
   * host.
   */
  async function fetchText(address: string): Promise<string> {
    const url = parseTarget(address)
    const signal = AbortSignal.timeout(timeoutMs)
    let isPublic = true
    try {
      const target = await within(signal, chooseAddress(url))
      isPublic = isPublicAddress(target)
      return await read(url, target, signal)
    } catch (error) {
      if (error instanceof AnswerFault) throw error
      throw new Error(faultText(error, { isPublic, signal }), { cause: error })
    }
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

  return { fetchText }
}

/** A valid HTTP response that cannot be used. */
class AnswerFault extends Error {}

export type Outbound = ReturnType<typeof createOutbound>

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

async function read(url: URL, address: string, signal: AbortSignal): Promise<string> {
  const response = await send(url, address, signal)
  try {
    if (response.statusCode !== 200) throw new AnswerFault(`answered ${response.statusCode ?? 0}`)
    const text = await readBounded(response, maxBytes)
    if (text === null) throw new AnswerFault(`answered more than ${maxBytes} bytes`)
    return text
  } finally {
    response.destroy()
  }
}

/**
 * Connects only to `address`, even if the name resolves to another address by then. TLS still
 * checks the name.
 */
async function send(url: URL, address: string, signal: AbortSignal): Promise<IncomingMessage> {
  const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>()
  const open = url.protocol === 'https:' ? requestHttps : requestHttp
  const family = isIP(address)
  const outgoing = open(url, {
    signal,
    agent: false,
    headers: { accept: 'application/json', 'accept-encoding': 'identity' },
    lookup: (_host, options, done) => {
      if (options.all === true) done(null, [{ address, family }])
      else done(null, address, family)
    },
  })
  outgoing.once('response', resolve)
  outgoing.on('error', (error: NodeJS.ErrnoException) =>
    reject(new Error(`cannot be reached (${error.code ?? 'failed'})`, { cause: error })),
  )
  outgoing.end()
  return promise
}
