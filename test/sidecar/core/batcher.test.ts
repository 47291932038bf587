import { describe, expect, it, onTestFinished } from 'vitest'
import { createCoreClient } from '../../../sidecar/core/client.ts'
import { gatherInFlight, gatherUntilQuiet } from '../../../sidecar/core/batcher.ts'
import { startCoreDouble } from '../../fakes/sidecar-core.ts'
import { coreToken, until } from '../support.ts'

/** Records batches; the test answers them. */
function recorder() {
  const batches: number[][] = []
  const open: PromiseWithResolvers<number[]>[] = []
  const send = (calls: number[]) => {
    batches.push(calls)
    const answer = Promise.withResolvers<number[]>()
    open.push(answer)
    return answer.promise
  }
  const answer = (index: number) => open[index]?.resolve((batches[index] ?? []).map((n) => n * 10))
  return { batches, open, send, answer }
}

describe('gathered calls', () => {
  it('are sent at once without a request in flight, otherwise together', async () => {
    const { batches, send, answer } = recorder()
    const call = gatherInFlight({ send, max: 3 })
    const answers = [1, 2, 3, 4, 5, 6].map(call)
    await Promise.resolve()
    expect(batches).toEqual([[1], [2, 3, 4]])
    answer(0)
    await expect(answers[0]).resolves.toBe(10)
    expect(batches).toEqual([[1], [2, 3, 4], [5, 6]])
    answer(1)
    answer(2)
    expect(await Promise.all(answers)).toEqual([10, 20, 30, 40, 50, 60])
  })

  it('do not wait for a slow answer to others', async () => {
    const { batches, send, answer } = recorder()
    const call = gatherUntilQuiet({ send, max: 3 })
    const answers = [1, 2, 3, 4].map(async (key, index) => {
      await until(() => batches.length === index)
      return call(key)
    })
    await until(() => batches.length === 4)
    expect(batches).toEqual([[1], [2], [3], [4]])
    answer(3)
    await expect(answers[3]).resolves.toBe(40)
    const [later, last] = [call(5), call(6)]
    answer(0)
    await until(() => batches.length === 5)
    answer(4)
    expect(await Promise.all([later, last])).toEqual([50, 60])
  })

  it('fail together, but not with later ones', async () => {
    const { open, send, answer } = recorder()
    const call = gatherInFlight({ send, max: 1 })
    const answers = [1, 2].map(call)
    open[0]?.reject(new Error('away'))
    await expect(answers[0]).rejects.toThrow('away')
    await Promise.resolve()
    answer(1)
    await expect(answers[1]).resolves.toBe(20)
  })

  it('fail when core answers a different number of calls', async () => {
    const call = gatherUntilQuiet({ send: async () => [], max: 3 })
    await expect(call(1)).rejects.toThrow(/a different number/)
  })

  it('need few requests for a thousand keys', async () => {
    const double = await startCoreDouble()
    onTestFinished(double.stop)
    const core = createCoreClient({ target: double.target, token: coreToken })
    onTestFinished(core.stop)
    const keys = Array.from({ length: 1_000 }, (_, n) => `sk_live_${n}`)
    await Promise.all(keys.map(core.verifyApiKey))
    expect(double.calls.verifyApiKey).toBe(1_000)
    expect(double.calls.verifyApiKeys).toBeLessThanOrEqual(7)
  })
})
