import { isIP, isIPv4 } from 'node:net'

/**
 * An IPv4 address, or the /64 of an IPv6 address, because a subscriber usually has the whole /64.
 */
export function toNetwork(address: string): string {
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
