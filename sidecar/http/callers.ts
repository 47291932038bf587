import type { IncomingMessage } from 'node:http'
import type { Apps, Purpose, Signers } from '../signers/signers.ts'
import { readAddress } from './addresses.ts'
import { createCallerCheck, presentedSecrets } from './caller.ts'
import type { Guesses } from './secret-throttle.ts'

export interface Signer {
  readonly apps: Apps
}

/** A signer, an unknown caller, or an address that sent too many wrong secrets. */
export type Caller = Signer | 'unknown' | 'limited'
export type CallerOf = (request: IncomingMessage) => Caller

export interface CallersOptions {
  /** Secrets of the default signer, which signs for all apps. */
  readonly secrets: Readonly<Record<Purpose, readonly string[]>>
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
