import { LRUCache } from 'lru-cache'
import { networkOf } from '../../core/lib/network/addresses.ts'
import type { SignerAddresses } from './addresses.ts'

export interface GuessLimits {
  /** Wrong secrets from one address in a minute; then none is compared any more. */
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
 * Counts wrong secrets by address. One that sent the right secret within the last hour, or that is the signer's by
 * SIGNER_ADDRESSES, is never locked out by the wrong ones of others behind it.
 */
export function createGuesses({ max, signers, mono }: GuessLimits) {
  const windows = new LRUCache<string, Window>({ max: addressesMax })
  const trusted = new Map<string, number>()

  function isLimited(address: string): boolean {
    // Nobody guesses: the case of nearly every call.
    if (windows.size === 0) return false
    const window = windows.get(networkOf(address))
    if (!window || window.count < max) return false
    if (window.endsAt <= mono()) {
      windows.delete(networkOf(address))
      return false
    }
    return !isTrusted(address)
  }

  const isTrusted = (address: string): boolean =>
    (trusted.get(address) ?? -Infinity) > mono() - trustMs || signers.includes(address)

  function addWrong(address: string): void {
    const name = networkOf(address)
    const window = windows.get(name)
    if (window && window.endsAt > mono()) window.count++
    else windows.set(name, { count: 1, endsAt: mono() + windowMs })
  }

  /** Remembers who sent the right secret, once a minute, as every call of a signer does. */
  function addRight(address: string): void {
    const at = mono()
    if ((trusted.get(address) ?? -Infinity) > at - windowMs) return
    if (trusted.size >= addressesMax) trusted.clear()
    trusted.set(address, at)
  }

  return { isLimited, addWrong, addRight }
}

export type Guesses = ReturnType<typeof createGuesses>
