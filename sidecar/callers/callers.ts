import { timingSafeEqual } from 'node:crypto'
import type { IncomingHttpHeaders, IncomingMessage } from 'node:http'
import { LRUCache } from 'lru-cache'
import { toNetwork } from '../../core/lib/network/addresses.ts'
import { type Reloadable, currentValue, deriveLive } from '../../core/lib/settings/reloadable.ts'
import type { SignerAddresses } from './addresses.ts'
import type { Apps, Purpose, Signers } from './signers.ts'

export interface Signer {
  readonly apps: Apps
}

/** A signer, an unknown caller, or an address that sent too many wrong secrets. */
export type Caller = Signer | 'unknown' | 'limited'
export type CallerOf = (request: IncomingMessage) => Caller

export interface CallersOptions {
  /** Secrets of the default signer, which signs for all apps. */
  readonly secrets: Readonly<Record<Purpose, Reloadable<readonly string[]>>>
  readonly signers: Pick<Signers, 'signerOf'>
  readonly guesses: Guesses
  readonly countRefused: (reason: string) => void
}

const defaultSigner: Signer = { apps: null }

/** Authenticates the callers of a route, and limits guesses of their secrets. */
export function createCallers({ secrets, signers, guesses, countRefused }: CallersOptions) {
  return (purpose: Purpose): CallerOf => {
    const isDefault = createCallerCheck(secrets[purpose])

    function identify({ headers }: IncomingMessage): Signer | undefined {
      if (isDefault(headers)) return defaultSigner
      for (const text of presentedSecrets(headers)) {
        const signer = signers.signerOf(text, purpose)
        if (signer) return signer
      }
      return undefined
    }

    return (request) => {
      const address = readAddress(request.socket)
      if (guesses.isLimited(address)) {
        countRefused('limited')
        return 'limited'
      }
      const signer = identify(request)
      if (signer) {
        guesses.addRight(address)
        return signer
      }
      countRefused('unknown')
      if (presentedSecrets(request.headers).length > 0) guesses.addWrong(address)
      return 'unknown'
    }
  }
}

/** Returns the address of a peer; an IPv4-mapped IPv6 address as IPv4. */
export function readAddress({
  remoteAddress = '',
}: {
  readonly remoteAddress?: string | undefined
}) {
  return remoteAddress.startsWith('::ffff:') ? remoteAddress.slice(7) : remoteAddress
}

/** Maximum length of a secret, in bytes; readSidecarConfig refuses longer ones. */
export const maxSecretBytes = 256

const headerNames = ['x-api-key', 'x-webhook-secret', 'livepeer-clearinghouse-token'] as const

/**
 * Authenticates the signer by a shared secret (decision 26) in any of four headers. Several secrets
 * are valid during a rotation; without any, all callers are refused. Compares all secrets in
 * constant time, each padded to the same length.
 */
export function createCallerCheck(
  secrets: Reloadable<readonly string[]>,
): (headers: IncomingHttpHeaders) => boolean {
  // Node returns header values as latin1, whatever their encoding is.
  const padded = deriveLive(secrets, (all) =>
    all.map((secret) => pad(Buffer.from(secret.trim()).toString('latin1'))),
  )
  const presented = Buffer.alloc(maxSecretBytes)
  let length = 0

  function isKnown(value: string): boolean {
    const text = value.trim()
    if (text === '' || text.length > maxSecretBytes) return false
    present(text)
    let isValid = false
    for (const secret of padded()) isValid = timingSafeEqual(secret, presented) || isValid
    return isValid
  }

  // Write zeros only over the rest of a longer previous text.
  function present(text: string): void {
    const end = presented.write(text, 'latin1')
    if (end < length) presented.fill(0, end, length)
    length = end
  }

  return (headers) => {
    if (isKnown(withoutScheme(headers.authorization ?? ''))) return true
    for (const name of headerNames) if (isKnown(String(headers[name] ?? ''))) return true
    return false
  }
}

/** Returns all secrets in the request's headers. */
const presentedSecrets = (headers: IncomingHttpHeaders): string[] =>
  [
    withoutScheme(headers.authorization ?? ''),
    ...headerNames.map((name) => String(headers[name] ?? '')),
  ]
    .map((text) => text.trim())
    .filter((text) => text !== '' && text.length <= maxSecretBytes)

/** Pads a secret with zeros, which no header value can contain. */
function pad(text: string): Buffer {
  const target = Buffer.alloc(maxSecretBytes)
  target.write(text, 'latin1')
  return target
}

const scheme = /^bearer /i

// A secret without its scheme is not an Authorization value (RFC 6750 section 2.1). Compare Go's
// spelling first, because that is cheaper than the expression.
const withoutScheme = (value: string): string =>
  value.startsWith('Bearer ') || scheme.test(value) ? value.slice(7) : ''

export interface GuessLimits {
  /** Wrong secrets allowed from one address per minute; further ones are not compared. */
  readonly max: Reloadable<number>
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
    if (!window || window.count < currentValue(max)) return false
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
