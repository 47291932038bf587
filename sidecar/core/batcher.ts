import { setTimeout as sleep } from 'node:timers/promises'
import { createCallBatcher } from '../../core/lib/concurrency.ts'

export interface BatchOptions<Call, Answer> {
  /** Returns one answer for each call, in the same order. */
  readonly send: (calls: Call[]) => Promise<readonly Answer[]>
  readonly max: number
}

/** Returns a function that sends calls in batches. A simulation provides its own. */
export type Gather = <Call, Answer>(
  options: BatchOptions<Call, Answer>,
) => (call: Call) => Promise<Answer>

const quietMs = 2
const longestMs = 50

/**
 * Sends a call at once if no request is in flight. Otherwise collects calls until none arrives for
 * two milliseconds, for fifty at most: a thousand cold users cost a few requests, and a single one
 * does not wait.
 */
export const gatherUntilQuiet: Gather = ({ send, max }) =>
  createCallBatcher(send, {
    batchMax: max,
    // So many requests in flight that a cold user does not wait for a slow answer to others.
    concurrency: 8,
    slowMax: 0,
    pause: (running, queued) => (running === 0 ? null : waitUntilQuiet(queued)),
  })

/** The same without a pause: calls that arrive while requests are in flight form the next batch. */
export const gatherInFlight: Gather = ({ send, max }) =>
  createCallBatcher(send, {
    batchMax: max,
    slowMax: 0,
    pause: (running) => (running === 0 ? null : Promise.resolve()),
  })

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
