import { BlockList, isIP } from 'node:net'
import type { EnvReader } from '../../core/lib/env.ts'

/** The signer's own addresses. Their connections and wrong secrets are not limited. */
export interface SignerAddresses {
  includes(address: string): boolean
}

/** `SIGNER_ADDRESSES`: addresses and blocks (`10.0.0.0/8`), separated by commas. */
export function readSignerAddresses(env: EnvReader): SignerAddresses {
  const list = new BlockList()
  const entries = env.list('SIGNER_ADDRESSES', {
    meaning:
      'Addresses or blocks (10.0.0.0/8) of your signers, separated by commas: neither their connections nor their wrong secrets are limited.',
  })
  for (const entry of entries)
    if (!add(list, entry))
      env.problem(`SIGNER_ADDRESSES: ${entry} is neither an address nor a block`)
  return {
    includes: (address) =>
      entries.length > 0 && list.check(address, isIP(address) === 6 ? 'ipv6' : 'ipv4'),
  }
}

function add(list: BlockList, entry: string): boolean {
  const [address = '', prefix, ...rest] = entry.split('/')
  const version = isIP(address)
  if (version === 0 || rest.length > 0) return false
  const family = version === 6 ? 'ipv6' : 'ipv4'
  const bits = Number(prefix ?? (version === 6 ? 128 : 32))
  if (!Number.isInteger(bits) || bits < 0 || bits > (version === 6 ? 128 : 32)) return false
  list.addSubnet(address, bits, family)
  return true
}
