import { setTimeout as sleep } from 'node:timers/promises'
import { expect, it } from 'vitest'
import { type BatchedCall, batchCalls } from '../../../gateway/core/batched-calls.ts'
import { DomainError } from '../../../proto/errors.ts'

const call = (request: number): BatchedCall<number> => ({
  request,
  authorization: `Basic ${request}`,
  correlationId: `c${request}`,
})
const bounds = { batchMax: 10, concurrency: 1, waitMs: 1_000 }
const outcomes = async (calls: Promise<unknown>[]) =>
  (await Promise.allSettled(calls)).map((one) =>
    one.status === 'fulfilled'
      ? one.value
      : one.reason instanceof DomainError
        ? `${one.reason.reason}: ${one.reason.message}`
        : one.reason,
  )

it('batches concurrent calls into one RPC, each with its own credential and answer', async () => {
  const batches: BatchedCall<number>[][] = []
  const send = batchCalls<number, string>(async (calls) => {
    batches.push(calls)
    return calls.map(({ request }) =>
      request % 2 === 0
        ? { response: `even ${request}` }
        : { refusal: { reason: 'NOT_FOUND', details: `no ${request}` } },
    )
  }, bounds)
  expect(await outcomes([2, 3, 4].map((n) => send(call(n))))).toEqual([
    'even 2',
    'NOT_FOUND: no 3',
    'even 4',
  ])
  expect(batches).toEqual([[call(2), call(3), call(4)]])
})

it('sends calls with long texts in separate messages, each with its own answer', async () => {
  const sizes: number[] = []
  const send = batchCalls<string, number>(async (calls) => {
    sizes.push(calls.length)
    return calls.map(({ request }) => ({ response: request.length }))
  }, bounds)
  const long = 'é'.repeat(100_000)
  const requests = ['a', 'bb', long, long, 'ccc']
  const answers = requests.map((request) =>
    send({ request, authorization: undefined, correlationId: 'c' }),
  )
  expect(await Promise.all(answers)).toEqual([1, 2, 100_000, 100_000, 3])
  expect(sizes).toEqual([3, 2])
})

it('throws INTERNAL when an answer is missing, empty or has an unknown reason', async () => {
  const send = batchCalls<number, string>(
    async () => [{}, { refusal: { reason: 'WHIM', details: '' } }],
    bounds,
  )
  const says = "INTERNAL: core's answer is neither a result nor an error"
  expect(await outcomes([1, 2, 3].map((n) => send(call(n))))).toEqual([says, says, says])
})

it('fails all calls of a failed RPC, but not those of the next', async () => {
  let fails = true
  const send = batchCalls<number, string>(async (calls) => {
    if (fails) throw new DomainError('UNAVAILABLE', 'away')
    return calls.map(() => ({ response: 'back' }))
  }, bounds)
  expect(await outcomes([1, 2].map((n) => send(call(n))))).toEqual([
    'UNAVAILABLE: away',
    'UNAVAILABLE: away',
  ])
  fails = false
  expect(await send(call(3))).toBe('back')
})

it('rejects a call that waited too long, without sending it', async () => {
  const gate = Promise.withResolvers<void>()
  const batches: number[] = []
  const send = batchCalls<number, string>(
    async (calls) => {
      batches.push(...calls.map(({ request }) => request))
      await gate.promise
      return calls.map(() => ({ response: 'late' }))
    },
    { batchMax: 1, concurrency: 1, waitMs: 400 },
  )
  const all = outcomes([1, 2, 3, 4, 5].map((n) => send(call(n))))
  await sleep(500)
  gate.resolve()
  // Four RPCs run, because up to three slow ones do not count towards `concurrency`.
  expect(await all).toEqual([
    ...Array(4).fill('late'),
    'UNAVAILABLE: the service is unavailable now; try again',
  ])
  expect(batches).toEqual([1, 2, 3, 4])
})
