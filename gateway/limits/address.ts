import { isIP, isIPv4 } from 'node:net'

/** What is read of a request here. */
export interface FromSomewhere {
  readonly raw: {
    readonly socket: { readonly remoteAddress?: string | undefined }
    readonly headers: Readonly<Record<string, string | string[] | undefined>>
  }
}

/**
 * Whose request it is, as far as limits go. With n trusted proxies it is the n-th address from the right in
 * X-Forwarded-For: each of them appended whom it was asked by. What stands further left the client may have made up.
 */
export function addressOf({ raw }: FromSomewhere, trustedProxyHops: number): string {
  const socket = raw.socket.remoteAddress ?? 'unknown'
  if (trustedProxyHops === 0) return networkOf(socket)
  const header = [raw.headers['x-forwarded-for'] ?? []].flat().join(',')
  const told = header
    .split(',')
    .map((part) => part.trim())
    .filter(Boolean)
  const found = told.at(-trustedProxyHops) ?? told[0]
  return networkOf(found !== undefined && isIP(found) !== 0 ? found : socket)
}

/** An IPv4 address, or the /64 of an IPv6 address: one subscriber has all of it. */
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
