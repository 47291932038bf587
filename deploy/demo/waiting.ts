import { setTimeout as sleep } from 'node:timers/promises'

const limitMs = 30_000

/** Reads until the answer fulfils the condition. Throws after 30 seconds, with the last answer. */
export async function waitFor<T>(
  what: string,
  read: () => Promise<T>,
  isDone: (answer: T) => boolean,
): Promise<T> {
  for (const end = Date.now() + limitMs; ; await sleep(200)) {
    const answer = await read()
    if (isDone(answer)) return answer
    if (Date.now() > end)
      throw new Error(`${what}: not so after 30 s; the last answer: ${JSON.stringify(answer)}`)
  }
}
