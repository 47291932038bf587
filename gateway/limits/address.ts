import { isIP, isIPv4 } from 'node:net'
import { Counter } from 'prom-client'
import type { Log } from '../../core/lib/log.ts'
import type { Metrics } from '../../core/lib/metrics.ts'

/** The parts of a request that an address is read from. */
export interface AddressedRequest {
  readonly raw: {
    readonly socket: { readonly remoteAddress?: string | undefined }
    readonly headers: Readonly<Record<string, string | string[] | undefined>>
  }
}

/**
 * The address that limits count a request for. With n trusted proxies it is the n-th from the right in X-Forwarded-For,
 * because each proxy appends the address that called it; anything further left may be an invention of the client.
 */
export function addressOf({ raw }: AddressedRequest, trustedProxyHops: number): string {
  const socket = raw.socket.remoteAddress ?? 'unknown'
  if (trustedProxyHops === 0) return networkOf(socket)
  const header = [raw.headers['x-forwarded-for'] ?? []].flat().join(',')
  const hops = header
    .split(',')
    .map((part) => part.trim())
    .filter(Boolean)
  const client = hops.at(-trustedProxyHops) ?? hops[0]
  return networkOf((client === undefined ? undefined : parseAddress(client)) ?? socket)
}

/** The address in an element of X-Forwarded-For, which proxies write with or without port, brackets and zone; undefined when it is none. */
export function parseAddress(text: string): string | undefined {
  const bare = text.trim().replace(/^"(.*)"$/, '$1')
  const [, v6, v4] = /^(?:\[([^\]]+)\]|([\d.]+))(?::\d{1,5})?$/.exec(bare) ?? []
  const [address = ''] = (v6 ?? v4 ?? bare).split('%')
  return isIP(address) === 0 ? undefined : address
}

/** An IPv4 address, or the /64 of an IPv6 address, because one subscriber has all of it. */
export function networkOf(address: string): string {
  const [bare = ''] = address.split('%')
  if (isIPv4(bare) || isIP(bare) === 0) return bare
  const groups = groupsOf(bare.toLowerCase())
  return groups.slice(0, 6).join() === '0,0,0,0,0,ffff'
    ? dotted(groups.slice(6))
    : `${groups.slice(0, 4).join(':')}::/64`
}

/** The eight groups of an IPv6 address, without leading zeros. */
function groupsOf(address: string): string[] {
  const hexadecimal = address.replace(/[\d.]+$/, (tail) =>
    tail.includes('.') ? hexGroups(tail) : tail,
  )
  const [head = '', tail] = hexadecimal.split('::')
  const before = head.split(':').filter(Boolean)
  const after = (tail ?? '').split(':').filter(Boolean)
  const zeros = Array.from({ length: Math.max(8 - before.length - after.length, 0) }, () => '0')
  return [...before, ...zeros, ...after].map((group) => group.replace(/^0+(?=.)/, ''))
}

const hexGroups = (v4: string): string => {
  const [a = 0, b = 0, c = 0, d = 0] = v4.split('.').map(Number)
  return [a * 256 + b, c * 256 + d].map((group) => group.toString(16)).join(':')
}

const dotted = (groups: readonly string[]): string =>
  groups
    .flatMap((group) => {
      const value = Number.parseInt(group, 16)
      return [value >> 8, value & 255]
    })
    .join('.')

export interface ForwardedDeps {
  readonly trustedProxyHops: number
  readonly log: Log
  readonly metrics: Metrics
}

/**
 * Returns a function that looks at each request's headers. X-Forwarded-For that nobody reads means that a proxy stands
 * before the gateway and every limit counts all callers as that proxy: it is counted, and said once.
 */
export function createForwardedCheck({ trustedProxyHops, log, metrics }: ForwardedDeps) {
  const ignored = new Counter({
    name: 'tollgate_gateway_forwarded_ignored_total',
    help: 'Requests with X-Forwarded-For while TRUSTED_PROXY_HOPS is 0',
    registers: [metrics],
  })
  let isWarned = false
  return ({ raw }: AddressedRequest): void => {
    if (trustedProxyHops > 0 || raw.headers['x-forwarded-for'] === undefined) return
    ignored.inc()
    if (!isWarned)
      log.warn(
        { from: raw.socket.remoteAddress },
        'requests carry X-Forwarded-For, and TRUSTED_PROXY_HOPS is 0: all callers behind that proxy share its limits; set it to the number of proxies before the gateway',
      )
    isWarned = true
  }
}

export type ForwardedCheck = ReturnType<typeof createForwardedCheck>
