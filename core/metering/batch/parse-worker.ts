import { parentPort } from 'node:worker_threads'
import { createRowBuffer } from '../../lib/copy-sql.ts'
import { type ParseRequest, packBatch } from './parse-pool.ts'
import { createBatchParser } from './parsed-batch.ts'

/** The thread of a parse pool: parses one batch per message. */
parentPort?.on('message', ({ bytes, ends, window, memory }: ParseRequest) => {
  const rows = createRowBuffer(memory ?? undefined)
  const parser = createBatchParser(rows, window, ends.length)
  let from = 0
  ends.forEach((end, index) => {
    parser.add(index, Buffer.from(bytes, from, end - from))
    from = end
  })
  const reply = packBatch(parser.read(), { bytes, memory: rows.memory() })
  parentPort?.postMessage(reply, [
    reply.bytes,
    reply.memory,
    reply.tickets.numbers.buffer,
    reply.tickets.ids.buffer,
  ])
})
