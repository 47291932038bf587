import { describe, expect, it } from 'vitest'
import { silentLog } from '../../../../core/lib/log.ts'
import { redriveReason } from '../../../../core/metering/redrive/by-reason.ts'
import type { Quarantine } from '../../../../core/metering/redrive/quarantine.ts'
import { DomainError } from '../../../../proto/errors.ts'

type Redrive = Pick<Quarantine, 'list' | 'redrive'>

/** Redrives three events, the second of which fails with `error`. */
function redriveAll(error: Error) {
  const events = ['a', 'b', 'c'].map((id) => ({ id }))
  const quarantine = {
    list: async () => ({ events, nextCursor: undefined, waiting: [] }),
    redrive: async ({ id }: { id: string }) => {
      if (id === 'b') throw error
    },
  } as unknown as Redrive
  return redriveReason(quarantine, {
    reason: 'unknown_app',
    underNewId: false,
    author: { name: 'Ada', actor: 'operator:ada' },
    signal: new AbortController().signal,
    log: silentLog(),
  })
}

describe('redriving all events of a reason', () => {
  it('goes on after an event that cannot become a ticket', async () => {
    const left = [{ id: 'b', problem: 'still no app' }]
    expect(await redriveAll(new DomainError('CONFLICT', 'still no app'))).toEqual({
      redriven: 2,
      left,
      nextCursor: undefined,
    })
  })

  it('goes on after an event that core fails to book', async () => {
    const { redriven, left } = await redriveAll(new Error('deadlock detected'))
    expect(redriven).toBe(2)
    expect(left).toEqual([{ id: 'b', problem: 'core failed; its log has the error' }])
  })

  it.each([
    new DomainError('UNAVAILABLE', 'later'),
    Object.assign(new Error('gone'), { code: 'ECONNREFUSED' }),
  ])('ends when the database is unavailable: %s', async (error) => {
    await expect(redriveAll(error)).rejects.toThrow(error.message)
  })
})
