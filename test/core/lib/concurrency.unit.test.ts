import { describe, expect, it } from 'vitest'
import { createKeyedSemaphore } from '../../../core/lib/concurrency.ts'
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

describe('createKeyedSemaphore', () => {
  it('limits running and waiting tasks and rejects others', async () => {
    const semaphore = createKeyedSemaphore({
      running: 2,
      waiting: 3,
      refusal: () => new DomainError('RATE_LIMITED', 'too many'),
    })
    const gate = Promise.withResolvers<void>()
    let most = 0
    let now = 0
    const all = Array.from({ length: 7 }, () =>
      reasonOf(
        semaphore.run('key', async () => {
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
    expect(await reasonOf(semaphore.run('key', async () => {}))).toBe('OK')
  })

  it('limits each key separately', async () => {
    const { run } = createKeyedSemaphore({ running: 1 })
    const gate = Promise.withResolvers<void>()
    const order: string[] = []
    const first = run('one', async () => {
      await gate.promise
      order.push('first')
    })
    const second = run('one', async () => void order.push('second'))
    await run('two', async () => void order.push('other'))
    gate.resolve()
    await Promise.all([first, second])
    expect(order).toEqual(['other', 'first', 'second'])
  })
})
