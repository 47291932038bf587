import { createHash } from 'node:crypto'
import { StripeFault } from './faults.ts'

interface StoredAnswer {
  readonly status: number
  readonly body: string
}

interface KeyRecord {
  readonly request: string
  readonly at: number
  answer: StoredAnswer | null
}

const keptMs = 24 * 3_600_000
const recordsMax = 50_000

/**
 * Stripe's idempotency keys: the same request gets its first answer, another request with the key
 * is refused, and so is one while the first is running. An answer that only refused the request is
 * not stored.
 */
export function createKeys(nowMs: () => number) {
  const records = new Map<string, KeyRecord>()

  /** Returns the stored answer of `key`; null if the request begins now. */
  function begin(key: string, request: string): StoredAnswer | null {
    const digest = createHash('sha1').update(request).digest('base64')
    const known = records.get(key)
    if (known === undefined || nowMs() - known.at >= keptMs) {
      records.delete(key)
      records.set(key, { request: digest, at: nowMs(), answer: null })
      const [oldest] = records.keys()
      if (records.size > recordsMax && oldest !== undefined) records.delete(oldest)
      return null
    }
    if (known.request !== digest)
      throw StripeFault.invalid(
        'Keys for idempotent requests can only be used with the same parameters they were first used with.',
        { type: 'idempotency_error' },
      )
    if (known.answer !== null) return known.answer
    throw new StripeFault(409, 'There is currently another in-progress request using this key.', {
      type: 'idempotency_error',
      code: 'idempotency_key_in_use',
    })
  }

  function end(key: string, answer: StoredAnswer): void {
    const record = records.get(key)
    const isExecuted = answer.status < 400 || answer.status === 402 || answer.status >= 500
    if (record && isExecuted) record.answer = answer
    else records.delete(key)
  }

  return { begin, end, abandon: (key: string) => records.delete(key) }
}
