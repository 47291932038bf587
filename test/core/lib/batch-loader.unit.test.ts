import { describe, expect, it } from 'vitest'
import { createBatchLoader } from '../../../core/lib/concurrency.ts'

function recorded(answer: (asked: readonly number[]) => Promise<void> = async () => {}) {
  const batches: (readonly number[])[] = []
  const ask = createBatchLoader(async (asked: readonly number[]) => {
    batches.push(asked)
    await answer(asked)
    return (one) => one * 10
  })
  return { ask, batches }
}

describe('createBatchLoader', () => {
  it('loads all keys of one turn at once, and returns to each call its own value', async () => {
    const { ask, batches } = recorded()
    expect(await Promise.all([1, 2, 3, 2].map(ask))).toEqual([10, 20, 30, 20])
    expect(batches).toEqual([[1, 2, 3, 2]])
  })

  it('never serves a call from a look-up that began before it', async () => {
    const gate = Promise.withResolvers<void>()
    const { ask, batches } = recorded(() => gate.promise)
    const first = ask(1)
    await expect.poll(() => batches.length).toBe(1)
    const second = ask(1)
    gate.resolve()
    expect(await Promise.all([first, second])).toEqual([10, 10])
    expect(batches).toEqual([[1], [1]])
  })

  it('starts further look-ups while one is slow', async () => {
    const gate = Promise.withResolvers<void>()
    const { ask, batches } = recorded((asked) =>
      asked.includes(1) ? gate.promise : Promise.resolve(),
    )
    const stuck = ask(1)
    await expect.poll(() => batches.length).toBe(1)
    expect(await ask(2)).toBe(20)
    gate.resolve()
    expect(await stuck).toBe(10)
  })

  it('limits the keys in a look-up and the concurrent look-ups', async () => {
    const gate = Promise.withResolvers<void>()
    const batches: (readonly number[])[] = []
    const ask = createBatchLoader(
      async (asked: readonly number[]) => {
        batches.push(asked)
        await gate.promise
        return (one) => one * 10
      },
      { batchMax: 2, concurrency: 2 },
    )
    const all = Promise.all([1, 2, 3, 4, 5].map(ask))
    await expect
      .poll(() => batches)
      .toEqual([
        [1, 2],
        [3, 4],
      ])
    gate.resolve()
    expect(await all).toEqual([10, 20, 30, 40, 50])
    expect(batches).toEqual([[1, 2], [3, 4], [5]])
  })

  it('allows only three slow look-ups beyond the limit', async () => {
    const gate = Promise.withResolvers<void>()
    const { ask, batches } = recorded(() => gate.promise)
    const all = []
    for (let one = 1; one <= 7; one++) {
      all.push(ask(one))
      await expect.poll(() => batches.length).toBe(Math.min(one, 5))
    }
    gate.resolve()
    expect(await Promise.all(all)).toEqual([10, 20, 30, 40, 50, 60, 70])
    expect(batches).toEqual([[1], [2], [3], [4], [5], [6, 7]])
  })

  it('rejects only the calls of a batch whose look-up fails', async () => {
    let fails = true
    const { ask } = recorded(async () => {
      if (fails) throw new Error('down')
    })
    const outcomes = await Promise.allSettled([1, 2].map(ask))
    expect(outcomes.map(({ status }) => status)).toEqual(['rejected', 'rejected'])
    fails = false
    expect(await ask(3)).toBe(30)
  })
})
