import { describe, expect, it } from 'vitest'
import { silentLog } from '../../../../core/lib/log.ts'
import type {
  EarlyWrite,
  IngestedBatch,
  PreparedBatch,
} from '../../../../core/metering/ingest/ingest.ts'
import { createPipelinedWriter } from '../../../../core/metering/ingest/pipelined-writer.ts'

const ingested: IngestedBatch = {
  counts: { ticket: 1, duplicate: 0, ignored: 0, quarantined: 0 },
  quarantined: new Map(),
  unpriced: 0,
  exhausted: [],
  settlement: null,
  anomalies: { forked: 0, late: 0, lost: 0n },
}
// The writer only compares batches by identity.
const batch = (): PreparedBatch => ({}) as unknown as PreparedBatch
const yieldToOthers = () => new Promise((resolve) => setImmediate(resolve))

/** An ingest that records calls, and completes each step when `go` allows it. */
function scripted({ failing = [] as readonly string[] } = {}) {
  const calls: string[] = []
  const names = new Map<PreparedBatch, string>()
  const waits = new Map<string, PromiseWithResolvers<void>>()
  const gate = (name: string) =>
    waits.get(name) ?? waits.set(name, Promise.withResolvers<void>()).get(name)
  const nameOf = (prepared: PreparedBatch): string => names.get(prepared) ?? '?'

  const canWriteEarly = (prepared: PreparedBatch): boolean =>
    !failing.includes(`begin ${nameOf(prepared)}`)

  async function write(prepared: PreparedBatch, early: EarlyWrite | null): Promise<IngestedBatch> {
    const name = nameOf(prepared)
    if (early === null) {
      calls.push(`commit ${name}`)
      return ingested
    }
    calls.push(`begin ${name}`)
    void gate(`wait ${name}`)?.promise.then(early.onTicketsWritten)
    try {
      await early.turn
    } catch (error) {
      calls.push(`abandon ${name}`)
      await yieldToOthers()
      calls.push(`abandoned ${name}`)
      throw error
    }
    calls.push(`finish ${name}`)
    await gate(`finish ${name}`)?.promise
    if (failing.includes(name)) throw new Error('the database went away')
    calls.push(`finished ${name}`)
    return ingested
  }

  const named = (name: string): PreparedBatch => {
    const prepared = batch()
    names.set(prepared, name)
    return prepared
  }
  return {
    writer: createPipelinedWriter({ canWriteEarly, write }, silentLog()),
    calls,
    named,
    go: (step: string) => gate(step)?.resolve(),
  }
}

describe('pipelined writer', () => {
  it('starts the next batch once the first has inserted its ids, and completes it once the first is committed', async () => {
    const { writer, calls, named, go } = scripted()
    const [one, two] = [named('1'), named('2')]
    const first = writer.write(one, Promise.resolve(two))
    await yieldToOthers()
    expect(calls).toEqual(['begin 1', 'finish 1'])
    go('wait 1')
    await yieldToOthers()
    expect(calls).toEqual(['begin 1', 'finish 1', 'begin 2'])
    go('finish 1')
    await first
    go('finish 2')
    await writer.write(two, undefined)
    expect(calls).toEqual([
      'begin 1',
      'finish 1',
      'begin 2',
      'finished 1',
      'finish 2',
      'finished 2',
    ])
  })

  it('starts a batch in its turn if it was not prepared earlier', async () => {
    const { writer, calls, named, go } = scripted()
    const late = Promise.withResolvers<PreparedBatch>()
    const [one, two] = [named('1'), named('2')]
    for (const step of ['wait 1', 'finish 1', 'finish 2']) go(step)
    await writer.write(one, late.promise)
    const second = writer.write(two, undefined)
    late.resolve(two)
    await second
    await yieldToOthers()
    expect(calls.filter((line) => line.startsWith('begin'))).toEqual(['begin 1', 'begin 2'])
  })

  it('abandons the batch ahead before it retries a failed one, which could wait for it', async () => {
    const { writer, calls, named, go } = scripted({ failing: ['1'] })
    const [one, two] = [named('1'), named('2')]
    const first = writer.write(one, Promise.resolve(two))
    go('wait 1')
    await yieldToOthers()
    go('finish 1')
    await first
    expect(calls).toEqual([
      'begin 1',
      'finish 1',
      'begin 2',
      'abandon 2',
      'abandoned 2',
      'commit 1',
    ])
    go('finish 2')
    await writer.write(two, undefined)
    expect(calls.slice(6)).toEqual(['begin 2', 'finish 2', 'finished 2'])
  })

  it('writes a batch at once if it cannot start early, with no batch ahead', async () => {
    const { writer, calls, named, go } = scripted({ failing: ['begin 1'] })
    go('wait 1')
    await writer.write(named('1'), Promise.resolve(named('2')))
    await yieldToOthers()
    expect(calls).toEqual(['commit 1'])
  })

  it('abandons the batch ahead when stopped, and starts no other', async () => {
    const { writer, calls, named, go } = scripted()
    const late = Promise.withResolvers<PreparedBatch>()
    const [one, two] = [named('1'), named('2')]
    const first = writer.write(one, Promise.resolve(two))
    go('wait 1')
    await yieldToOthers()
    for (const step of ['finish 1', 'wait 2', 'finish 2']) go(step)
    await first
    await writer.stop()
    await writer.write(two, late.promise)
    await writer.stop()
    late.resolve(named('3'))
    await yieldToOthers()
    expect(calls).toEqual([
      'begin 1',
      'finish 1',
      'begin 2',
      'finished 1',
      'abandon 2',
      'abandoned 2',
      'begin 2',
      'finish 2',
      'finished 2',
    ])
  })
})
