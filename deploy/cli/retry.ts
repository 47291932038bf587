import { setTimeout as sleep } from 'node:timers/promises'
import { DomainError } from '../../proto/errors.ts'

const tries = 5
const firstPauseMs = 200

/** Asks again, a few times, when core or its database do not answer. For requests that may come twice. */
export async function patiently<T>(ask: () => Promise<T>): Promise<T> {
  for (let tried = 1; ; tried++) {
    try {
      return await ask()
    } catch (error) {
      if (!(error instanceof DomainError) || error.reason !== 'UNAVAILABLE' || tried === tries)
        throw error
      await sleep(firstPauseMs * 2 ** (tried - 1))
    }
  }
}
