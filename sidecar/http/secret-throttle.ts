import { LRUCache } from 'lru-cache'
import { toNetwork } from '../../core/lib/network/addresses.ts'
import type { SignerAddresses } from './addresses.ts'

export interface GuessLimits {
  /** Wrong secrets allowed from one address per minute; further ones are not compared. */
  readonly max: number
  readonly signers: SignerAddresses
  /** Milliseconds of a clock that never jumps. */
  readonly mono: () => number
}

const windowMs = 60_000
const trustMs = 3_600_000
const addressesMax = 50_000

interface Window {
  count: number
  readonly endsAt: number
}

/**
 * Counts wrong secrets by address. An address that sent the right secret within the last hour, or
 * is listed in SIGNER_ADDRESSES, is never locked out by wrong secrets from other clients behind it.
 */
export function createSecretThrottle({ max, signers, mono }: GuessLimits) {
  const windows = new LRUCache<string, Window>({ max: addressesMax })
  const trusted = new Map<string, number>()

  function isLimited(address: string): boolean {
    // No wrong secrets at all: true for nearly every call.
    if (windows.size === 0) return false
    const window = windows.get(toNetwork(address))
    if (!window || window.count < max) return false
    if (window.endsAt <= mono()) {
      windows.delete(toNetwork(address))
      return false
    }
    return !isTrusted(address)
  }

  const isTrusted = (address: string): boolean =>
    (trusted.get(address) ?? -Infinity) > mono() - trustMs || signers.includes(address)

  function addWrong(address: string): void {
    const name = toNetwork(address)
    const window = windows.get(name)
    if (window && window.endsAt > mono()) window.count++
    else windows.set(name, { count: 1, endsAt: mono() + windowMs })
  }

  /**
   * Trusts an address that sent the right secret. Updates it once a minute, because every call of a
   * signer gets here.
   */
  function addRight(address: string): void {
    const at = mono()
    if ((trusted.get(address) ?? -Infinity) > at - windowMs) return
    if (trusted.size >= addressesMax) trusted.clear()
    trusted.set(address, at)
  }

  return { isLimited, addWrong, addRight }
}

export type Guesses = ReturnType<typeof createSecretThrottle>
