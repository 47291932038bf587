import type { IncomingMessage } from 'node:http'
import { addressOf } from './addresses.ts'
import { createCallerCheck, presentsSecret } from './caller.ts'
import type { Guesses } from './guesses.ts'

/** Who calls: our signer, somebody else, or an address from which too many wrong secrets came. */
export type Caller = 'signer' | 'unknown' | 'limited'

export interface CallersOptions {
  readonly secrets: readonly string[]
  readonly guesses: Guesses
  readonly countRefused: (caller: Caller) => void
}

/** Authenticates callers, and limits guesses at the secret. */
export function createCallers({ secrets, guesses, countRefused }: CallersOptions) {
  const isKnown = createCallerCheck(secrets)

  return ({ headers, socket }: IncomingMessage): Caller => {
    const address = addressOf(socket)
    const caller = guesses.isLimited(address) ? 'limited' : isKnown(headers) ? 'signer' : 'unknown'
    if (caller === 'signer') {
      guesses.addRight(address)
      return caller
    }
    countRefused(caller)
    if (caller === 'unknown' && presentsSecret(headers)) guesses.addWrong(address)
    return caller
  }
}

export type Callers = ReturnType<typeof createCallers>
