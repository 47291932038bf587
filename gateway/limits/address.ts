import { isIP, isIPv4 } from 'node:net'

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
  return networkOf(client !== undefined && isIP(client) !== 0 ? client : socket)
}

/** An IPv4 address, or the /64 of an IPv6 address, because one subscriber has all of it. */
export function networkOf(address: string): string {
  const mapped = /^::ffff:(?<v4>[\d.]+)$/i.exec(address)?.groups?.['v4'] ?? address
  if (isIPv4(mapped) || isIP(mapped) === 0) return mapped
  const [head = '', tail] = (mapped.split('%')[0] ?? '').toLowerCase().split('::')
  const before = head.split(':').filter(Boolean)
  const after = (tail ?? '').split(':').filter(Boolean)
  const zeros = Array.from({ length: Math.max(8 - before.length - after.length, 0) }, () => '0')
  const groups = [...before, ...zeros, ...after]
    .slice(0, 4)
    .map((group) => group.replace(/^0+(?=.)/, ''))
  return `${groups.join(':')}::/64`
}
