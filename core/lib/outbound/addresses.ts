import { BlockList, isIP } from 'node:net'

/** Entries of OUTBOUND_ALLOW: host names, addresses and address ranges. */
export interface OutboundAllowance {
  readonly hosts: ReadonlySet<string>
  readonly ranges: BlockList
}

/**
 * Ranges without public hosts: private, loopback, link-local with the clouds' metadata, shared,
 * reserved (RFC 6890).
 */
const reserved = new BlockList()
const reserved4: readonly (readonly [string, number])[] = [
  ['0.0.0.0', 8],
  ['10.0.0.0', 8],
  ['100.64.0.0', 10],
  ['127.0.0.0', 8],
  ['169.254.0.0', 16],
  ['172.16.0.0', 12],
  ['192.0.0.0', 24],
  ['192.0.2.0', 24],
  ['192.88.99.0', 24],
  ['192.168.0.0', 16],
  ['198.18.0.0', 15],
  ['198.51.100.0', 24],
  ['203.0.113.0', 24],
  ['224.0.0.0', 3],
]
for (const [network, prefix] of reserved4) reserved.addSubnet(network, prefix, 'ipv4')
// In IPv6 only global unicast is public, except ranges that embed an IPv4 address or serve
// documentation.
const global6 = new BlockList()
global6.addSubnet('2000::', 3, 'ipv6')
for (const [network, prefix] of [
  ['2001::', 23],
  ['2001:db8::', 32],
  ['2002::', 16],
  ['3fff::', 20],
] as const)
  reserved.addSubnet(network, prefix, 'ipv6')

const loopback = new BlockList()
loopback.addSubnet('127.0.0.0', 8, 'ipv4')
loopback.addAddress('::1', 'ipv6')

const familyOf = (address: string) => (isIP(address) === 6 ? 'ipv6' : 'ipv4')

export const isLoopback = (address: string): boolean => loopback.check(address, familyOf(address))

/** Whether only this machine can reach a listener at the host, which is a name or an address. */
export const isLoopbackHost = (host: string): boolean =>
  host === 'localhost' || (isIP(host) !== 0 && isLoopback(host))

/** Whether an IP address belongs to a public host. */
export function isPublicAddress(address: string): boolean {
  const family = familyOf(address)
  if (isIP(address) === 0 || reserved.check(address, family)) return false
  return family === 'ipv4' || global6.check(address, 'ipv6')
}

/** Whether OUTBOUND_ALLOW lists the host, by name or by address. */
export const isListed = (
  { hosts, ranges }: OutboundAllowance,
  { host, address }: { readonly host: string; readonly address: string },
): boolean => hosts.has(host) || ranges.check(address, familyOf(address))

/** Parses the entries of OUTBOUND_ALLOW. Returns null if one is not a host, address or range. */
export function parseAllowance(entries: readonly string[]): OutboundAllowance | null {
  const hosts = new Set<string>()
  const ranges = new BlockList()
  for (const entry of entries) {
    const [network = '', prefix, ...rest] = entry.toLowerCase().split('/')
    if (rest.length > 0) return null
    if (isIP(network) === 0) {
      if (prefix !== undefined || !/^[a-z0-9_]([a-z0-9._-]*[a-z0-9])?$/.test(network)) return null
      hosts.add(network)
      continue
    }
    const bits = prefix === undefined ? undefined : Number(prefix)
    if (bits === undefined) ranges.addAddress(network, familyOf(network))
    else if (isPrefix(prefix, bits, network)) ranges.addSubnet(network, bits, familyOf(network))
    else return null
  }
  return { hosts, ranges }
}

const isPrefix = (text: string | undefined, bits: number, network: string): boolean =>
  /^\d{1,3}$/.test(text ?? '') && bits <= (isIP(network) === 6 ? 128 : 32)
