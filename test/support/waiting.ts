import { setTimeout as sleep } from 'node:timers/promises'

const limitMs = 15_000
const pauseMs = 10

/** Waits until the condition is true. Throws after 15 seconds. */
export async function until(condition: () => boolean | Promise<boolean>): Promise<void> {
  for (const end = Date.now() + limitMs; !(await condition()); await sleep(pauseMs))
    if (Date.now() > end) throw new Error(`never became true: ${condition.toString()}`)
}

/**
 * Reads until the value is as expected. Returns the last value after a minute, so that a comparison
 * shows what is wrong with it.
 */
export async function eventually<T>(
  read: () => Promise<T>,
  isExpected: (value: T) => boolean,
): Promise<T> {
  const end = Date.now() + 60_000
  for (;;) {
    const value = await read()
    if (isExpected(value) || Date.now() > end) return value
    await sleep(pauseMs)
  }
}
