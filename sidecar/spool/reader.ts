import type { FileHandle } from 'node:fs/promises'
import { headerBytes, isHeader, mark, recordAt } from './records.ts'

export interface Stored {
  readonly envelope: Buffer
  /** When it was spooled, in milliseconds since 1970. */
  readonly atMs: number
  /** Where the record behind it begins. */
  readonly next: number
}

export type Read =
  | { readonly kind: 'records'; readonly records: readonly Stored[]; readonly next: number }
  /** The bytes up to `next` are not what was written. */
  | { readonly kind: 'damage'; readonly next: number }
  /** The file ends within a record: its writer was killed before it could acknowledge it. */
  | { readonly kind: 'torn' }
  | { readonly kind: 'end' }

export interface Stretch {
  readonly from: number
  readonly end: number
}

export interface Limits {
  readonly count: number
  readonly bytes: number
}

const chunkBytes = 1024 * 1024

/** Reads the records from `from` on, one at least and within the limits, or why there is none. */
export async function readRecords(
  file: FileHandle,
  { from, end }: Stretch,
  limits: Limits,
): Promise<Read> {
  if (from >= end) return { kind: 'end' }
  let bytes = await readAt(file, from, Math.min(end - from, chunkBytes))
  const first = recordAt(bytes, 0)
  if (first.kind === 'short') {
    if (from + first.needs > end) return { kind: 'torn' }
    // An envelope that is larger than a chunk, or a header that says how large it is.
    bytes = await readAt(file, from, Math.min(end - from, Math.max(first.needs, chunkBytes)))
  }
  const records = parse(bytes, from, limits)
  const last = records.at(-1)
  if (last) return { kind: 'records', records, next: last.next }
  const next = first.kind === 'broken' && first.next !== null ? from + first.next : null
  return lost(file, { from, end }, next)
}

function parse(bytes: Buffer, from: number, limits: Limits): Stored[] {
  const records: Stored[] = []
  let size = 0
  let at = 0
  while (records.length < limits.count && at < bytes.length) {
    const found = recordAt(bytes, at)
    if (found.kind !== 'record') break
    size += found.envelope.length
    if (records.length > 0 && size > limits.bytes) break
    records.push({ envelope: found.envelope, atMs: found.atMs, next: from + found.next })
    at = found.next
  }
  return records
}

async function lost(file: FileHandle, { from, end }: Stretch, next: number | null): Promise<Read> {
  if (next !== null) return { kind: 'damage', next }
  const found = await findHeader(file, { from: from + 1, end })
  // A power cut can leave a file longer than what was written to it, with zeros for the rest.
  const isTorn = found === end && (await isZero(file, { from, end }))
  return isTorn ? { kind: 'torn' } : { kind: 'damage', next: found }
}

/** The next place where a header stands; the end when there is none. */
async function findHeader(file: FileHandle, { from, end }: Stretch): Promise<number> {
  for (let start = from; end - start >= headerBytes; start += chunkBytes - headerBytes + 1) {
    const bytes = await readAt(file, start, Math.min(end - start, chunkBytes))
    for (let at = bytes.indexOf(mark); at >= 0; at = bytes.indexOf(mark, at + 1)) {
      if (isHeader(bytes, at)) return start + at
    }
  }
  return end
}

async function isZero(file: FileHandle, { from, end }: Stretch): Promise<boolean> {
  for (let at = from; at < end; at += chunkBytes) {
    const bytes = await readAt(file, at, Math.min(end - at, chunkBytes))
    if (bytes.some((byte) => byte !== 0)) return false
  }
  return true
}

/** Exactly `length` bytes; throws when the file has become shorter than it was. */
export async function readAt(file: FileHandle, from: number, length: number): Promise<Buffer> {
  const bytes = Buffer.allocUnsafe(length)
  for (let done = 0; done < length;) {
    const { bytesRead } = await file.read(bytes, done, length - done, from + done)
    if (bytesRead === 0) throw new Error(`a segment of the spool ends ${length - done} bytes early`)
    done += bytesRead
  }
  return bytes
}
