import type { FileHandle } from 'node:fs/promises'
import { crc32 } from 'node:zlib'

/**
 * The format of a segment: records one behind the other. A record is a header of 36 bytes and one
 * envelope as it came.
 *
 *      0  4  magic bytes; none of them occurs in UTF-8, so no text contains them
 *      4  4  length of the envelope
 *      8  8  when it was spooled, in milliseconds since 1970
 *     16  8  its number: each spool counts its events from 1
 *     24  4  its place in the group that was forced to disk at once, from 0
 *     28  4  CRC-32 of the envelope
 *     32  4  CRC-32 of the header up to here
 *
 * The header has a checksum of its own: with a length that can be trusted, a record that was cut
 * off differs from one that is damaged, and the start of the next one is known. A group is written
 * when the one before is acknowledged, so each record proves that the numbers before its group were.
 *
 * Spools of before have records without number and place: 24 bytes of header, and another magic.
 */
export const headerBytes = 36
export const magic = Buffer.from([0xf5, 0xff, 0xc1, 0xff])

interface Layout {
  readonly magic: Buffer
  readonly bytes: number
  readonly isNumbered: boolean
}

const layouts: readonly Layout[] = [
  { magic, bytes: headerBytes, isNumbered: true },
  { magic: Buffer.from([0xf5, 0xff, 0xc1, 0xfe]), bytes: 24, isNumbered: false },
]
const magicStart = magic.subarray(0, 3)
const leastHeaderBytes = 24
/** Above the largest envelope that is accepted. */
const maxLength = 4 * 1024 * 1024

/** The number of the first record, and its place in its group. */
export interface RecordNumbers {
  readonly sequence: number
  readonly place: number
}

/** The size of envelopes as records. */
export const recordBytes = (envelopes: readonly Buffer[]): number =>
  envelopes.reduce((sum, { length }) => sum + headerBytes + length, 0)

/** Envelopes as records, one behind the other. */
export function encodeRecords(
  envelopes: readonly Buffer[],
  atMs: number,
  { sequence, place }: RecordNumbers,
): Buffer {
  const bytes = Buffer.allocUnsafe(recordBytes(envelopes))
  let at = 0
  for (const [i, envelope] of envelopes.entries()) {
    magic.copy(bytes, at)
    bytes.writeUInt32LE(envelope.length, at + 4)
    bytes.writeDoubleLE(atMs, at + 8)
    bytes.writeDoubleLE(sequence + i, at + 16)
    bytes.writeUInt32LE(place + i, at + 24)
    bytes.writeUInt32LE(crc32(envelope), at + 28)
    bytes.writeUInt32LE(crc32(bytes.subarray(at, at + 32)), at + 32)
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
      readonly number: RecordNumbers | null
      readonly next: number
    }
  /** The bytes end before the record does, and fit a record so far. */
  | { readonly kind: 'short'; readonly needs: number }
  | { readonly kind: 'broken' }

const broken = { kind: 'broken' } as const

/** Decodes the record at `at`. The envelope is a view of `bytes`. */
export function decodeRecord(bytes: Buffer, at: number): DecodedRecord {
  const left = bytes.length - at
  const layout = layouts.find(({ magic }) => startsWith(bytes, at, magic))
  if (!layout) return broken
  if (left < layout.bytes) return { kind: 'short', needs: layout.bytes }
  if (!isHeader(bytes, at)) return broken
  const length = bytes.readUInt32LE(at + 4)
  const next = at + layout.bytes + length
  if (next > bytes.length) return { kind: 'short', needs: layout.bytes + length }
  const envelope = bytes.subarray(at + layout.bytes, next)
  if (crc32(envelope) !== bytes.readUInt32LE(at + layout.bytes - 8)) return broken
  const number = layout.isNumbered
    ? { sequence: bytes.readDoubleLE(at + 16), place: bytes.readUInt32LE(at + 24) }
    : null
  return { kind: 'record', envelope, atMs: bytes.readDoubleLE(at + 8), number, next }
}

/** True when the bytes from `at` on are these, as far as there are any. */
function startsWith(bytes: Buffer, at: number, magic: Buffer): boolean {
  const length = Math.min(bytes.length - at, magic.length)
  return bytes.compare(magic, 0, length, at, at + length) === 0
}

/** True when a whole header stands at `at`. */
const isHeader = (bytes: Buffer, at: number): boolean =>
  layouts.some(
    (layout) =>
      at + layout.bytes <= bytes.length &&
      startsWith(bytes, at, layout.magic) &&
      bytes.readUInt32LE(at + 4) <= maxLength &&
      crc32(bytes.subarray(at, at + layout.bytes - 4)) ===
        bytes.readUInt32LE(at + layout.bytes - 4),
  )

export interface SpooledEvent {
  readonly envelope: Buffer
  /** When it was spooled, in milliseconds since 1970. */
  readonly atMs: number
  /** Null in a spool of before numbers. */
  readonly number: RecordNumbers | null
  /** Where the record behind it begins. */
  readonly next: number
}

/** What a read of a segment finds at its start. */
export type SegmentRead =
  | { readonly kind: 'records'; readonly records: readonly SpooledEvent[]; readonly next: number }
  /** The bytes up to `next` are not what was written. */
  | { readonly kind: 'damage'; readonly next: number }
  /** The file ends within a record: its writer was killed, or the end of the file is lost. */
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
  const isCut = first.kind === 'short' && from + first.needs > end
  if (first.kind === 'short' && !isCut) {
    // An envelope that is larger than a chunk, or a header that says how large it is.
    bytes = await readAt(file, from, Math.min(end - from, Math.max(first.needs, chunkBytes)))
  }
  const records = decodeRecords(bytes, from, limits)
  const last = records.at(-1)
  if (last) return { kind: 'records', records, next: last.next }
  return classifyDamage(file, { from, end }, isCut)
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
    const { envelope, atMs, number } = record
    records.push({ envelope, atMs, number, next: from + record.next })
    at = record.next
  }
  return records
}

/**
 * Tells damaged bytes from a torn end. Where a record ends by its own header is not believed: bytes
 * may be missing from it, so the next one may begin sooner.
 */
async function classifyDamage(
  file: FileHandle,
  { from, end }: ByteRange,
  isCut: boolean,
): Promise<SegmentRead> {
  const nextHeader = await findHeader(file, { from: from + 1, end })
  // A power cut can leave a file longer than what was written to it, with zeros for the rest.
  const isTorn = nextHeader === end && (isCut || (await isZero(file, { from, end })))
  return isTorn ? { kind: 'torn' } : { kind: 'damage', next: nextHeader }
}

/** The start of the next header; `end` when there is none. */
async function findHeader(file: FileHandle, { from, end }: ByteRange): Promise<number> {
  for (let start = from; end - start >= leastHeaderBytes; start += chunkBytes - headerBytes + 1) {
    const bytes = await readAt(file, start, Math.min(end - start, chunkBytes))
    for (let at = bytes.indexOf(magicStart); at >= 0; at = bytes.indexOf(magicStart, at + 1)) {
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
