import { once } from 'node:events'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { Client } from 'pg'
import { from as copyFrom, to as copyTo } from 'pg-copy-streams'

/**
 * The baseline of ingest: plain COPY of ticket rows into a table with the same columns but no index
 * and no constraint except "not null", on the same server, at once and on one connection.
 */
export async function openCopy(url: string) {
  const client = new Client({ connectionString: url })
  await client.connect()
  await client.query('create table copied (like tickets)')
  let rows: Buffer[] = []

  /** Keeps the text of `count` tickets, so that producing it is not timed. */
  async function prepare(count: number): Promise<void> {
    rows = []
    const stream = client.query(
      copyTo(`copy (select * from tickets limit ${Math.trunc(count)}) to stdout`),
    )
    stream.on('data', (chunk: Buffer) => void rows.push(chunk))
    await once(stream, 'end')
    rows = inChunks(Buffer.concat(rows))
  }

  /** Returns the seconds to copy and commit them. */
  async function time(): Promise<number> {
    await client.query('truncate copied')
    const started = performance.now()
    await pipeline(Readable.from(rows), client.query(copyFrom('copy copied from stdin')))
    return (performance.now() - started) / 1000
  }

  return { prepare, time, stop: () => client.end() }
}

const chunkBytes = 64 * 1024

function inChunks(bytes: Buffer): Buffer[] {
  const length = Math.ceil(bytes.length / chunkBytes)
  return Array.from({ length }, (_, i) => bytes.subarray(i * chunkBytes, (i + 1) * chunkBytes))
}
