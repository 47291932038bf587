import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { silentLog } from '../../../core/lib/log.ts'
import { createMetrics } from '../../../core/lib/metrics.ts'
import { DomainError } from '../../../proto/errors.ts'
import { type RecordQueue, createRecordQueue } from '../../../sidecar/explain/record-queue.ts'
import { decisionOf } from '../../support/usage/decisions.ts'

type Send = Parameters<typeof createRecordQueue>[0]['send']

const counts: Record<string, number> = {}
const metrics = {
  countRecords: (outcome: string, count: number) =>
    void (counts[outcome] = (counts[outcome] ?? 0) + count),
}
let sent: string[] = []
let fault: Error | null = null
const send: Send = async (records) => {
  if (fault) throw fault
  sent.push(...records.map(({ id }) => id))
}
let queue: RecordQueue
beforeEach(() => {
  for (const name of Object.keys(counts)) delete counts[name]
  sent = []
  fault = null
  queue = createRecordQueue({ send, metrics, registry: createMetrics('test'), log: silentLog() })
})
afterEach(async () => {
  await queue.stop()
})

const fill = (count: number): string[] =>
  Array.from({ length: count }, () => {
    const record = decisionOf(new Date(0), 'acme')
    queue.add(record)
    return record.id
  })

describe('records of decisions', () => {
  it('reach core in order, in any number', async () => {
    const ids = fill(1_200)
    await queue.flush()
    expect(sent).toEqual(ids)
    expect(counts).toEqual({ recorded: 1_200 })
  })

  it('wait while core is unavailable, up to ten thousand', async () => {
    fault = new DomainError('UNAVAILABLE', 'core does not answer')
    const ids = fill(9_999)
    await queue.flush()
    expect(queue.isFull()).toBe(false)
    ids.push(...fill(1))
    expect(queue.isFull()).toBe(true)
    fault = null
    await queue.flush()
    expect(sent).toEqual(ids)
    expect(queue.isFull()).toBe(false)
  })

  it('do not wait for a batch that core refuses', async () => {
    fault = new DomainError('REQUEST_INVALID', 'no')
    fill(3)
    await queue.flush()
    fault = null
    const ids = fill(1)
    await queue.flush()
    expect(sent).toEqual(ids)
    expect(counts).toEqual({ refused: 3, recorded: 1 })
  })

  it('are sent when the sidecar stops', async () => {
    await queue.flush()
    const ids = fill(2)
    await queue.stop()
    expect(sent).toEqual(ids)
  })
})
