import { describe, expect, it } from 'vitest'
import { limitConcurrency } from '../../../core/lib/concurrency.ts'
import { DomainError } from '../../../proto/errors.ts'

/** 'OK', or the reason of the error. */
const reasonOf = (work: Promise<unknown>): Promise<string> =>
  work.then(
    () => 'OK',
    (error: unknown) => {
      if (error instanceof DomainError) return error.reason
      throw error
    },
  )

describe('limitConcurrency', () => {
  it('limits running and waiting tasks and rejects others', async () => {
    const runLimited = limitConcurrency({
      running: 2,
      waiting: 3,
      refusal: () => new DomainError('RATE_LIMITED', 'too many'),
    })
    const gate = Promise.withResolvers<void>()
    let most = 0
    let now = 0
    const all = Array.from({ length: 7 }, () =>
      reasonOf(
        runLimited(async () => {
          most = Math.max(most, ++now)
          await gate.promise
          now--
        }),
      ),
    )
    gate.resolve()
    const ends = await Promise.all(all)
    expect(ends.filter((end) => end === 'RATE_LIMITED')).toHaveLength(2)
    expect(most).toBe(2)
    expect(await reasonOf(runLimited(async () => {}))).toBe('OK')
  })
})
