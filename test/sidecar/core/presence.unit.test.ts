import { status } from '@grpc/grpc-js'
import { describe, expect, it } from 'vitest'
import type { CallOptions } from '../../../core/lib/grpc.ts'
import { DomainError } from '../../../proto/errors.ts'
import { createPresence } from '../../../sidecar/core/presence.ts'

const options = { deadlineMs: 800 }

/** A scripted core: its calls wait until the test answers, fails or cancels them. */
function world() {
  const clock = { ms: 0, work: () => {} }
  const presence = createPresence({
    mono: () => clock.ms,
    every: (_ms, work) => {
      clock.work = work
      return () => void (clock.work = () => {})
    },
  })
  const waiting: PromiseWithResolvers<string>[] = []
  const call = (_request: null, { signal }: CallOptions) => {
    const answer = Promise.withResolvers<string>()
    signal?.addEventListener('abort', () => answer.reject(outage(status.CANCELLED)))
    waiting.push(answer)
    return answer.promise
  }
  const sendWith = (by: CallOptions, silenceMs?: number) =>
    presence
      .watched(call, silenceMs)(null, by)
      .catch((error: DomainError) => error.reason)
  const send = () => sendWith(options)

  /** Runs the process again after `ms`: first its timers, then its arrived data. */
  async function pass(ms: number, arrived: () => void = () => {}): Promise<void> {
    clock.ms += ms
    clock.work()
    arrived()
    await new Promise((resolve) => setImmediate(resolve))
  }

  /** Lets the process run for `ms`. */
  async function run(ms: number): Promise<void> {
    for (let passed = 0; passed < ms; passed += 50) await pass(50)
  }

  return { presence, waiting, send, sendWith, pass, run }
}

const outage = (code: status): DomainError =>
  new DomainError('UNAVAILABLE', 'core does not answer', {
    cause: Object.assign(new Error('the call failed'), { code }),
  })

describe('the presence of core', () => {
  it('ends when no call is answered until the deadline of one', async () => {
    const { presence, send, run } = world()
    const answer = send()
    await run(750)
    expect(presence.isAway()).toBe(false)
    await run(100)
    expect(presence.isAway()).toBe(true)
    expect(await answer).toBe('UNAVAILABLE')
  })

  it('survives a slow call while others are answered', async () => {
    const { presence, waiting, send, run } = world()
    const slow = send()
    await run(400)
    const quick = send()
    waiting[1]?.resolve('quick')
    expect(await quick).toBe('quick')
    await run(500)
    expect(await slow).toBe('UNAVAILABLE')
    expect(presence.isAway()).toBe(false)
  })

  it('survives a pause of this process', async () => {
    const { presence, waiting, send, pass } = world()
    const answer = send()
    for (let pause = 0; pause < 5; pause++) await pass(1_000)
    waiting[0]?.resolve('late')
    expect(await answer).toBe('late')
    expect(presence.isAway()).toBe(false)
  })

  it('survives a missed deadline if the answer has arrived unread', async () => {
    const { presence, waiting, send, pass, run } = world()
    const answer = send()
    await run(750)
    await pass(1_000, () => waiting[0]?.resolve('in time'))
    expect(await answer).toBe('in time')
    expect(presence.isAway()).toBe(false)
  })

  it('ends at once without a connection, and fails other calls until a call is answered', async () => {
    const { presence, waiting, send } = world()
    const decide = presence.whilePresent(() => Promise.resolve('answer'))
    const refused = send()
    waiting[0]?.reject(outage(status.UNAVAILABLE))
    expect(await refused).toBe('UNAVAILABLE')
    expect(presence.isAway()).toBe(true)
    await expect(decide(null, options)).rejects.toThrow('core is unavailable')
    const heartbeat = send()
    waiting[1]?.resolve('here')
    await heartbeat
    expect(presence.isAway()).toBe(false)
    expect(await decide(null, options)).toBe('answer')
  })

  it('returns with a late answer', async () => {
    const { presence, waiting, run, sendWith } = world()
    const answer = sendWith({ deadlineMs: 3_000 }, 800)
    await run(850)
    expect(presence.isAway()).toBe(true)
    waiting[0]?.resolve('late')
    expect(await answer).toBe('late')
    expect(presence.isAway()).toBe(false)
  })

  it('ends a wait in time, while the work continues', async () => {
    const { presence, run } = world()
    const work = Promise.withResolvers<string>()
    const waited = presence.within(work.promise, 800).catch((error: DomainError) => error.reason)
    await run(850)
    expect(await waited).toBe('UNAVAILABLE')
    work.resolve('late')
    expect(await presence.within(work.promise, 800)).toBe('late')
  })

  it('survives a refusal', async () => {
    const { presence, waiting, send } = world()
    const refused = send()
    waiting[0]?.reject(new DomainError('CONFLICT', 'another process uses the id'))
    expect(await refused).toBe('CONFLICT')
    expect(presence.isAway()).toBe(false)
  })
})
