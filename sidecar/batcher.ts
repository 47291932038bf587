import { setTimeout as sleep } from 'node:timers/promises'

export interface BatchOptions<Call, Answer> {
  /** Returns one answer for each call, in the same order. */
  readonly send: (calls: Call[]) => Promise<readonly Answer[]>
  readonly max: number
}

/** Returns a function that sends calls in batches. A simulation provides its own. */
export type Gather = <Call, Answer>(
  options: BatchOptions<Call, Answer>,
) => (call: Call) => Promise<Answer>

interface Waiting<Call, Answer> {
  readonly call: Call
  readonly resolve: (answer: Answer) => void
  readonly reject: (error: unknown) => void
}

const quietMs = 2
const longestMs = 50
/** Maximum requests in flight, so that a cold user does not wait for a slow answer to others. */
const quietInFlight = 8

/**
 * Sends a call at once if no request is in flight. Otherwise collects calls until none arrives for
 * two milliseconds, for fifty at most: a thousand cold users cost a few requests, and a single one
 * does not wait.
 */
export const gatherUntilQuiet: Gather = (options) =>
  createBatcher(options, { wait: waitUntilQuiet, inFlightMax: quietInFlight })

/** The same without a pause: calls that arrive while requests are in flight form the next batch. */
export const gatherInFlight: Gather = (options) =>
  createBatcher(options, { wait: () => Promise.resolve(), inFlightMax: 2 })

async function waitUntilQuiet(count: () => number): Promise<void> {
  for (
    let [waited, before] = [0, -1];
    waited < longestMs && count() !== before;
    waited += quietMs
  ) {
    before = count()
    await sleep(quietMs)
  }
}

interface Pace {
  readonly wait: (count: () => number) => Promise<void>
  readonly inFlightMax: number
}

function createBatcher<Call, Answer>(
  { send, max }: BatchOptions<Call, Answer>,
  { wait, inFlightMax }: Pace,
): (call: Call) => Promise<Answer> {
  let waiting: Waiting<Call, Answer>[] = []
  let inFlight = 0
  let isGathering = false

  async function sendWaiting(): Promise<void> {
    const batch = waiting.slice(0, max)
    waiting = waiting.slice(max)
    inFlight++
    try {
      const answers = await send(batch.map(({ call }) => call))
      if (answers.length !== batch.length)
        throw new Error('core answered a different number of calls')
      batch.forEach(({ resolve }, index) => resolve(answers[index] as Answer))
    } catch (error) {
      for (const { reject } of batch) reject(error)
    } finally {
      inFlight--
      start()
    }
  }

  function start(): void {
    if (waiting.length === 0 || isGathering || inFlight >= inFlightMax) return
    if (inFlight === 0) return void sendWaiting()
    isGathering = true
    void wait(() => waiting.length).then(() => {
      isGathering = false
      if (waiting.length > 0) void sendWaiting()
    })
  }

  return (call) => {
    const { promise, resolve, reject } = Promise.withResolvers<Answer>()
    waiting.push({ call, resolve, reject })
    start()
    return promise
  }
}
