import type { FileHandle } from 'node:fs/promises'
import { crc32 } from 'node:zlib'

/**
 * The format of a segment: records one behind the other. A record is a header of 24 bytes and one
 * envelope as it came.
 *
 *      0  4  magic bytes; none of them occurs in UTF-8, so no text contains them
 *      4  4  length of the envelope
 *      8  8  when it was spooled, in milliseconds since 1970
 *     16  4  CRC-32 of the envelope
 *     20  4  CRC-32 of the header up to here
 *
 * The header has a checksum of its own: with a length that can be trusted, a record that was cut
 * off differs from one that is damaged, and the start of the next one is known.
 */
export const headerBytes = 24
export const magic = Buffer.from([0xf5, 0xff, 0xc1, 0xfe])
/** Above the largest envelope that is accepted. */
const maxLength = 4 * 1024 * 1024

/** Envelopes as records, one behind the other. */
export function encodeRecords(envelopes: readonly Buffer[], atMs: number): Buffer {
  const size = envelopes.reduce((sum, { length }) => sum + headerBytes + length, 0)
  const bytes = Buffer.allocUnsafe(size)
  let at = 0
  for (const envelope of envelopes) {
    magic.copy(bytes, at)
    bytes.writeUInt32LE(envelope.length, at + 4)
    bytes.writeDoubleLE(atMs, at + 8)
    bytes.writeUInt32LE(crc32(envelope), at + 16)
    bytes.writeUInt32LE(crc32(bytes.subarray(at, at + 20)), at + 20)
    envelope.copy(bytes, at + headerBytes)
    at += headerBytes + envelope.length
  }
  return bytes
}

export type DecodedRecord =
  | {
      readonly kind: 'record'
      readonly envelope: Buffer
      readonly atMs: number
      readonly next: number
    }
  /** The bytes end before the record does, and fit a record so far. */
  | { readonly kind: 'short'; readonly needs: number }
  /** No record; `next` is where one may follow, when the header tells. */
  | { readonly kind: 'broken'; readonly next: number | null }

const broken = { kind: 'broken', next: null } as const

/** Decodes the record at `at`. The envelope is a view of `bytes`. */
export function decodeRecord(bytes: Buffer, at: number): DecodedRecord {
  const left = bytes.length - at
  if (left < headerBytes) {
    const length = Math.min(left, magic.length)
    const isMagic = bytes.compare(magic, 0, length, at, at + length) === 0
    return isMagic ? { kind: 'short', needs: headerBytes } : broken
  }
  if (!isHeader(bytes, at)) return broken
  const length = bytes.readUInt32LE(at + 4)
  const next = at + headerBytes + length
  if (next > bytes.length) return { kind: 'short', needs: headerBytes + length }
  const envelope = bytes.subarray(at + headerBytes, next)
  if (crc32(envelope) !== bytes.readUInt32LE(at + 16)) return { kind: 'broken', next }
  return { kind: 'record', envelope, atMs: bytes.readDoubleLE(at + 8), next }
}

/** True when a whole header stands at `at`. */
function isHeader(bytes: Buffer, at: number): boolean {
  return (
    at + headerBytes <= bytes.length &&
    bytes.compare(magic, 0, magic.length, at, at + magic.length) === 0 &&
    bytes.readUInt32LE(at + 4) <= maxLength &&
    crc32(bytes.subarray(at, at + 20)) === bytes.readUInt32LE(at + 20)
  )
}

export interface SpooledEvent {
  readonly envelope: Buffer
  /** When it was spooled, in milliseconds since 1970. */
  readonly atMs: number
  /** Where the record behind it begins. */
  readonly next: number
}

/** What a read of a segment finds at its start. */
export type SegmentRead =
  | { readonly kind: 'records'; readonly records: readonly SpooledEvent[]; readonly next: number }
  /** The bytes up to `next` are not what was written. */
  | { readonly kind: 'damage'; readonly next: number }
  /** The file ends within a record: its writer was killed before it could acknowledge it. */
  | { readonly kind: 'torn' }
  | { readonly kind: 'end' }

export interface ByteRange {
  readonly from: number
  readonly end: number
}

export interface ReadLimits {
  readonly count: number
  readonly bytes: number
}

const chunkBytes = 1024 * 1024

/** Reads the records from `from` on, one at least and within the limits, or why there is none. */
export async function readRecords(
  file: FileHandle,
  { from, end }: ByteRange,
  limits: ReadLimits,
): Promise<SegmentRead> {
  if (from >= end) return { kind: 'end' }
  let bytes = await readAt(file, from, Math.min(end - from, chunkBytes))
  const first = decodeRecord(bytes, 0)
  if (first.kind === 'short') {
    if (from + first.needs > end) return { kind: 'torn' }
    // An envelope that is larger than a chunk, or a header that says how large it is.
    bytes = await readAt(file, from, Math.min(end - from, Math.max(first.needs, chunkBytes)))
  }
  const records = decodeRecords(bytes, from, limits)
  const last = records.at(-1)
  if (last) return { kind: 'records', records, next: last.next }
  const next = first.kind === 'broken' && first.next !== null ? from + first.next : null
  return classifyDamage(file, { from, end }, next)
}

function decodeRecords(bytes: Buffer, from: number, limits: ReadLimits): SpooledEvent[] {
  const records: SpooledEvent[] = []
  let size = 0
  let at = 0
  while (records.length < limits.count && at < bytes.length) {
    const record = decodeRecord(bytes, at)
    if (record.kind !== 'record') break
    size += record.envelope.length
    if (records.length > 0 && size > limits.bytes) break
    records.push({ envelope: record.envelope, atMs: record.atMs, next: from + record.next })
    at = record.next
  }
  return records
}

/** Tells damaged bytes from a torn end. `next` is where the next record starts, when known. */
async function classifyDamage(
  file: FileHandle,
  { from, end }: ByteRange,
  next: number | null,
): Promise<SegmentRead> {
  if (next !== null) return { kind: 'damage', next }
  const nextHeader = await findHeader(file, { from: from + 1, end })
  // A power cut can leave a file longer than what was written to it, with zeros for the rest.
  const isTorn = nextHeader === end && (await isZero(file, { from, end }))
  return isTorn ? { kind: 'torn' } : { kind: 'damage', next: nextHeader }
}

/** The start of the next header; `end` when there is none. */
async function findHeader(file: FileHandle, { from, end }: ByteRange): Promise<number> {
  for (let start = from; end - start >= headerBytes; start += chunkBytes - headerBytes + 1) {
    const bytes = await readAt(file, start, Math.min(end - start, chunkBytes))
    for (let at = bytes.indexOf(magic); at >= 0; at = bytes.indexOf(magic, at + 1)) {
      if (isHeader(bytes, at)) return start + at
    }
  }
  return end
}

async function isZero(file: FileHandle, { from, end }: ByteRange): Promise<boolean> {
  for (let at = from; at < end; at += chunkBytes) {
    const bytes = await readAt(file, at, Math.min(end - at, chunkBytes))
    if (bytes.some((byte) => byte !== 0)) return false
  }
  return true
}

/** Reads exactly `length` bytes; throws when the file has become shorter than it was. */
export async function readAt(file: FileHandle, from: number, length: number): Promise<Buffer> {
  const bytes = Buffer.allocUnsafe(length)
  for (let done = 0; done < length;) {
    const { bytesRead } = await file.read(bytes, done, length - done, from + done)
    if (bytesRead === 0) throw new Error(`a segment of the spool ends ${length - done} bytes early`)
    done += bytesRead
  }
  return bytes
}
