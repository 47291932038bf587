import { describe, expect, it } from 'vitest'
import { silentLog } from '../../../../core/lib/log.ts'
import type { Begun, Ingested, Prepared } from '../../../../core/metering/ingest/ingest.ts'
import { createRelay } from '../../../../core/metering/ingest/pipeline.ts'

const ingested: Ingested = {
  counts: { ticket: 1, duplicate: 0, ignored: 0, quarantined: 0 },
  quarantined: new Map(),
  unpriced: 0,
  exhausted: [],
  irregular: { forked: 0, late: 0, lost: 0n },
}
// The relay only tells batches from each other.
const batch = (): Prepared => ({}) as unknown as Prepared
const turn = () => new Promise((resolve) => setImmediate(resolve))

/** An ingest that says what it is asked, and does each step when it is told to. */
function scripted({ failing = [] as readonly string[] } = {}) {
  const said: string[] = []
  const names = new Map<Prepared, string>()
  const waits = new Map<string, PromiseWithResolvers<void>>()
  const gate = (name: string) =>
    waits.get(name) ?? waits.set(name, Promise.withResolvers<void>()).get(name)
  const nameOf = (prepared: Prepared): string => names.get(prepared) ?? '?'

  function begin(prepared: Prepared): Begun | null {
    const name = nameOf(prepared)
    if (failing.includes(`begin ${name}`)) return null
    said.push(`begin ${name}`)
    const waiting = gate(`wait ${name}`)?.promise ?? Promise.resolve()
    return {
      prepared,
      waiting,
      finish: async () => {
        said.push(`finish ${name}`)
        await gate(`finish ${name}`)?.promise
        if (failing.includes(name)) throw new Error('the database went away')
        said.push(`finished ${name}`)
        return ingested
      },
      abandon: async () => {
        said.push(`abandon ${name}`)
        await turn()
        said.push(`abandoned ${name}`)
      },
    }
  }

  const commit = async (prepared: Prepared): Promise<Ingested> => {
    said.push(`commit ${nameOf(prepared)}`)
    return ingested
  }
  const named = (name: string): Prepared => {
    const prepared = batch()
    names.set(prepared, name)
    return prepared
  }
  return {
    relay: createRelay({ begin, commit }, silentLog()),
    said,
    named,
    go: (step: string) => gate(step)?.resolve(),
  }
}

describe('the relay of batches', () => {
  it('begins the next when all ids of the one are entered, and finishes it when the one is committed', async () => {
    const { relay, said, named, go } = scripted()
    const [one, two] = [named('1'), named('2')]
    const first = relay.write(one, Promise.resolve(two))
    await turn()
    expect(said).toEqual(['begin 1', 'finish 1'])
    go('wait 1')
    await turn()
    expect(said).toEqual(['begin 1', 'finish 1', 'begin 2'])
    go('finish 1')
    await first
    go('finish 2')
    await relay.write(two, undefined)
    expect(said).toEqual(['begin 1', 'finish 1', 'begin 2', 'finished 1', 'finish 2', 'finished 2'])
  })

  it('begins a batch in its turn that was not prepared before', async () => {
    const { relay, said, named, go } = scripted()
    const late = Promise.withResolvers<Prepared>()
    const [one, two] = [named('1'), named('2')]
    for (const step of ['wait 1', 'finish 1', 'finish 2']) go(step)
    await relay.write(one, late.promise)
    const second = relay.write(two, undefined)
    late.resolve(two)
    await second
    await turn()
    expect(said.filter((line) => line.startsWith('begin'))).toEqual(['begin 1', 'begin 2'])
  })

  it('lets go of what is ahead before it writes again what failed, which could wait for it', async () => {
    const { relay, said, named, go } = scripted({ failing: ['1'] })
    const [one, two] = [named('1'), named('2')]
    const first = relay.write(one, Promise.resolve(two))
    go('wait 1')
    await turn()
    go('finish 1')
    await first
    expect(said).toEqual(['begin 1', 'finish 1', 'begin 2', 'abandon 2', 'abandoned 2', 'commit 1'])
    go('finish 2')
    await relay.write(two, undefined)
    expect(said.slice(6)).toEqual(['begin 2', 'finish 2', 'finished 2'])
  })

  it('writes in one go what cannot begin before its turn, with nothing ahead of it', async () => {
    const { relay, said, named, go } = scripted({ failing: ['begin 1'] })
    go('wait 1')
    await relay.write(named('1'), Promise.resolve(named('2')))
    await turn()
    expect(said).toEqual(['commit 1'])
  })

  it('lets go of what is ahead when it is stopped, and begins nothing more', async () => {
    const { relay, said, named, go } = scripted()
    const late = Promise.withResolvers<Prepared>()
    const [one, two] = [named('1'), named('2')]
    const first = relay.write(one, Promise.resolve(two))
    go('wait 1')
    await turn()
    for (const step of ['finish 1', 'wait 2', 'finish 2']) go(step)
    await first
    await relay.stop()
    await relay.write(two, late.promise)
    await relay.stop()
    late.resolve(named('3'))
    await turn()
    expect(said).toEqual([
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
