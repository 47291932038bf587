const slowMs = 50
const slowMax = 3

export interface Together {
  /** How many are asked for at once, at most. */
  readonly batchMax?: number
  /** How many look-ups are under way, so that one is made use of while another is found; up to three slow ones besides. */
  readonly lanes?: number
}

interface Waiting<Asked, Found> {
  readonly asked: Asked
  resolve(found: Found): void
  reject(error: unknown): void
}

/**
 * Looks up at once what is asked for at the same time: a round trip for many instead of one for each. A batch leaves
 * after everything in it was asked, so that no answer is older than its question and nothing is remembered; the next
 * one leaves when a lane is free. What is asked must be fit for the look-up, because one that fails fails all of its
 * batch.
 */
export function together<Asked, Found>(
  load: (asked: readonly Asked[]) => Promise<(one: Asked) => Found>,
  { batchMax = 64, lanes = 2 }: Together = {},
): (asked: Asked) => Promise<Found> {
  const waiting: Waiting<Asked, Found>[] = []
  let underWay = 0
  let slow = 0

  function leave(): void {
    while (waiting.length > 0 && underWay - Math.min(slow, slowMax) < lanes)
      void travel(waiting.splice(0, batchMax))
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
