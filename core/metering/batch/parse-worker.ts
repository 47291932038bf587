import { parentPort } from 'node:worker_threads'
import { createRowBuffer } from '../../lib/copy-sql.ts'
import { createBatch } from './batch.ts'
import { type SortRequest, packBatch } from './parse-message.ts'

/** The thread that sorts large batches, one after the other. */
parentPort?.on('message', ({ bytes, ends, at, memory }: SortRequest) => {
  const rows = createRowBuffer(memory ?? undefined)
  const sorting = createBatch(rows, at, ends.length)
  let from = 0
  ends.forEach((end, index) => {
    sorting.add(index, Buffer.from(bytes, from, end - from))
    from = end
  })
  const reply = packBatch(sorting.read(), { bytes, memory: rows.memory() })
  parentPort?.postMessage(reply, [
    reply.bytes,
    reply.memory,
    reply.tickets.numbers.buffer,
    reply.tickets.ids.buffer,
  ])
})
