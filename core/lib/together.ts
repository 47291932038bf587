const batchMax = 200
const lanesMax = 4
const slowMs = 50

interface Waiting<Asked, Found> {
  readonly asked: Asked
  resolve(found: Found): void
  reject(error: unknown): void
}

/**
 * Looks up at once what is asked for at the same time: a round trip for many instead of one for each. A batch leaves
 * after everything in it was asked, so that no answer is older than its question and nothing is remembered; the next
 * one leaves when it is back, or when it is slow. What is asked must be fit for the look-up, because one that fails
 * fails all of its batch.
 */
export function together<Asked, Found>(
  load: (asked: readonly Asked[]) => Promise<(one: Asked) => Found>,
): (asked: Asked) => Promise<Found> {
  const waiting: Waiting<Asked, Found>[] = []
  let underWay = 0
  let slow = 0

  function leave(): void {
    if (waiting.length > 0 && underWay < lanesMax && underWay === slow) void travel(waiting.splice(0, batchMax))
  }

  async function travel(batch: readonly Waiting<Asked, Found>[]): Promise<void> {
    let isSlow = false
    const timer = setTimeout(() => {
      isSlow = true
      slow++
      leave()
    }, slowMs)
    underWay++
    try {
      const find = await load(batch.map(({ asked }) => asked))
      for (const { asked, resolve } of batch) resolve(find(asked))
    } catch (error) {
      for (const { reject } of batch) reject(error)
    }
    clearTimeout(timer)
    underWay--
    if (isSlow) slow--
    setImmediate(leave)
  }

  return (asked) => {
    const { promise, resolve, reject } = Promise.withResolvers<Found>()
    // After the requests that have arrived with this one.
    if (waiting.push({ asked, resolve, reject }) === 1) setImmediate(leave)
    return promise
  }
}
