import { once } from 'node:events'
import type { Writable } from 'node:stream'
import { finished } from 'node:stream/promises'
import { from as copyFrom } from 'pg-copy-streams'
import type { Db } from './sql.ts'

/**
 * Rows in the binary format of Postgres's COPY: each row starts with its number of fields, each
 * field with its length in bytes.
 *
 * Gains: rows are written into one reused buffer, without an object or a string per field. With
 * such objects the garbage collector took more time than all parsing, and `insert ... select from
 * unnest` of texts reached 0.09 of the speed of a plain COPY. Binary rows, sums before the write
 * and larger batches together doubled that: see the `ingest by COPY` row of `npm run bench`. Plain
 * version: `insert` with parameters, whose result test/core/lib/copy.test.ts expects.
 */
export interface RowBuffer {
  /** Number of bytes written. */
  readonly end: () => number
  readonly row: (fields: number) => void
  readonly none: () => void
  readonly text: (value: string) => void
  /** A decimal in plain notation ("-12.50"). */
  readonly numeric: (value: string) => void
  readonly int4: (value: number) => void
  readonly int8: (value: bigint | number) => void
  readonly boolean: (value: boolean) => void
  /** Microseconds since 1970. */
  readonly instant: (micros: number) => void
  /** The 16 bytes that start at `from`. */
  readonly uuid: (bytes: Uint8Array, from?: number) => void
  readonly bytes: (value: Uint8Array) => void
  /** Bytes from hexadecimal text; dashes are skipped, so that it takes the text of a UUID. */
  readonly hex: (value: string) => void
  /** A one-dimensional array. `write` writes each element, which must be of this type. */
  readonly array: <T>(type: ArrayElement, values: readonly T[], write: (value: T) => void) => void
  /** Bytes of `source` that are already encoded. */
  readonly copy: (source: Buffer, from: number, to: number) => void
  /** A view of the bytes from `from` to `to`; valid until the next write. */
  readonly slice: (from: number, to: number) => Buffer
  /** Empties the buffer, and frees its memory if that is larger than `keepBytes`. */
  readonly clear: () => void
}

/** Postgres object identifiers of the supported element types. */
const elementTypes = {
  bytea: 17,
  int8: 20,
  text: 25,
  timestamptz: 1184,
  numeric: 1700,
  uuid: 2950,
} as const
export type ArrayElement = keyof typeof elementTypes

const firstBytes = 1024 * 1024
const keepBytes = 24 * 1024 * 1024
// Postgres counts timestamps from the year 2000.
const epochMicros = 946_684_800_000_000
const highWord = 2 ** 32

/** Returns a buffer that starts with `memory` and grows as needed. */
export function createRowBuffer(memory: ArrayBuffer = new ArrayBuffer(firstBytes)): RowBuffer {
  let buffer = Buffer.from(memory)
  let at = 0

  function room(needed: number): void {
    if (at + needed <= buffer.length) return
    const larger = Buffer.from(new ArrayBuffer(Math.max(buffer.length * 2, at + needed)))
    buffer.copy(larger, 0, 0, at)
    buffer = larger
  }

  /** Like `writeInt32BE`, without its checks of value and offset. */
  function word(value: number, place: number): void {
    buffer[place] = value >>> 24
    buffer[place + 1] = value >>> 16
    buffer[place + 2] = value >>> 8
    buffer[place + 3] = value
  }

  function length(value: number): void {
    room(4 + value)
    word(value, at)
    at += 4
  }

  function text(value: string): void {
    room(4 + value.length * 3)
    const start = at + 4
    const written = buffer.write(value, start, 'utf8')
    word(written, at)
    at = start + written
  }

  function numeric(value: string): void {
    room(16 + value.length)
    const written = writeNumeric(buffer, at + 4, value)
    word(written, at)
    at += 4 + written
  }

  function long(value: number): void {
    const high = Math.floor(value / highWord)
    word(high, at)
    word(value - high * highWord, at + 4)
    at += 8
  }

  function int8(value: bigint | number): void {
    length(8)
    const number = Number(value)
    if (Number.isSafeInteger(number)) long(number)
    else at = buffer.writeBigInt64BE(BigInt(value), at)
  }

  function copy(source: Buffer, from: number, to: number): void {
    room(to - from)
    at += source.copy(buffer, at, from, to)
  }

  function uuid(value: Uint8Array, from = 0): void {
    length(16)
    for (let i = from; i < from + 16; i++) buffer[at++] = value[i] ?? 0
  }

  function hex(value: string): void {
    room(4 + (value.length >> 1))
    const start = at + 4
    const end = writeHex(buffer, start, value)
    word(end - start, at)
    at = end
  }

  function array<T>(type: ArrayElement, values: readonly T[], write: (value: T) => void): void {
    room(24)
    const start = at
    for (const header of [0, 1, 0, elementTypes[type], values.length, 1]) {
      word(header, at)
      at += 4
    }
    for (const value of values) write(value)
    word(at - start - 4, start)
  }

  return {
    text,
    numeric,
    int8,
    uuid,
    hex,
    array,
    bytes: (value) => {
      length(value.length)
      buffer.set(value, at)
      at += value.length
    },
    end: () => at,
    row: (fields) => {
      room(2)
      short(buffer, at, fields)
      at += 2
    },
    none: () => {
      room(4)
      word(-1, at)
      at += 4
    },
    int4: (value) => {
      length(4)
      word(value, at)
      at += 4
    },
    boolean: (value) => {
      length(1)
      buffer[at++] = value ? 1 : 0
    },
    instant: (micros) => {
      length(8)
      long(micros - epochMicros)
    },
    copy,
    slice: (from, to) => buffer.subarray(from, to),
    clear: () => {
      at = 0
      if (buffer.length > keepBytes) buffer = Buffer.from(new ArrayBuffer(firstBytes))
    },
  }
}

const dash = 45
/** The value of each hexadecimal digit, indexed by character code; -1 for other characters. */
const nibbles = Int8Array.from({ length: 128 }, (_, code) => {
  const digit = String.fromCharCode(code).toLowerCase()
  return '0123456789abcdef'.indexOf(digit)
})

/**
 * Writes the bytes of hexadecimal text and skips dashes. Returns the offset after the last byte.
 */
function writeHex(buffer: Buffer, at: number, value: string): number {
  let end = at
  for (let i = 0; i < value.length; i += 2) {
    if (value.charCodeAt(i) === dash) i += 1
    const [high, low] = [nibbles[value.charCodeAt(i)] ?? -1, nibbles[value.charCodeAt(i + 1)] ?? -1]
    if (high < 0 || low < 0) throw new Error('not hexadecimal')
    buffer[end++] = (high << 4) | low
  }
  return end
}

const minus = 0x4000
const zero = 48

/**
 * Writes a decimal in the format of `numeric`: the number of base-10,000 digits, the weight of the
 * first digit, the sign, the scale, and the digits without leading or trailing zeros. Returns the
 * number of bytes written.
 */
function writeNumeric(buffer: Buffer, at: number, value: string): number {
  const start = value.charCodeAt(0) === 45 ? 1 : 0
  const point = value.indexOf('.')
  const whole = point < 0 ? value.length : point
  const scale = point < 0 ? 0 : value.length - point - 1
  const groups = (whole - start + 3) >> 2
  let digits = 0
  let significant = 0
  let first = 0
  const add = (digit: number, place: number): void => {
    if (digit === 0 && digits === 0) return
    if (digits === 0) first = place
    short(buffer, at + 8 + digits * 2, digit)
    digits += 1
    if (digit !== 0) significant = digits
  }
  for (let group = 0; group < groups; group++) {
    const end = whole - (groups - group - 1) * 4
    add(read(value, Math.max(end - 4, start), end), groups - group - 1)
  }
  for (let group = 0; group * 4 < scale; group++) {
    const from = whole + 1 + group * 4
    const to = Math.min(from + 4, value.length)
    add(read(value, from, to) * 10 ** (4 - (to - from)), -group - 1)
  }
  short(buffer, at, significant)
  short(buffer, at + 2, significant === 0 ? 0 : first)
  short(buffer, at + 4, start === 1 && significant > 0 ? minus : 0)
  short(buffer, at + 6, scale)
  return 8 + significant * 2
}

/** Like `writeInt16BE`, without its checks of value and offset. */
function short(buffer: Buffer, at: number, value: number): void {
  buffer[at] = value >> 8
  buffer[at + 1] = value
}

function read(value: string, from: number, to: number): number {
  let number = 0
  for (let i = from; i < to; i++) number = number * 10 + value.charCodeAt(i) - zero
  return number
}

const header = Buffer.from('PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0', 'latin1')
const trailer = Buffer.from([0xff, 0xff])
const chunkBytes = 256 * 1024

/**
 * Runs `copy <target> from stdin` on a connection that is inside a transaction. `target` is a table
 * with its columns. Rejects with the Postgres error if the rows are refused; the transaction is
 * then aborted.
 */
export async function copyRows(db: Db, target: string, rows: Buffer): Promise<void> {
  const stream = db.query(copyFrom(`copy ${target} from stdin (format binary)`))
  const done = finished(stream)
  await Promise.all([done, send(stream, rows, done)])
}

async function send(stream: Writable, rows: Buffer, done: Promise<void>): Promise<void> {
  for (const chunk of chunks(rows)) {
    // A failed COPY never emits 'drain'.
    if (!stream.write(chunk)) await Promise.race([once(stream, 'drain'), done])
  }
  stream.end()
}

function* chunks(rows: Buffer): Generator<Buffer> {
  yield header
  for (let from = 0; from < rows.length; from += chunkBytes)
    yield rows.subarray(from, from + chunkBytes)
  yield trailer
}

/**
 * Array parameters in Postgres's binary format: the driver sends a buffer as binary.
 *
 * Gains: Postgres takes 0.7 us to parse a UUID in a text array, and the rows of an account, its
 * credit, its hour and its session have 13 UUIDs, 30 numbers and 7 instants. See the `ingest, each
 * ticket of another user` row of `npm run bench`. Plain version: an array as the parameter;
 * test/core/lib/copy.test.ts compares the two.
 */
export const uuids = (values: readonly string[]): Buffer =>
  binaryArray('uuid', values, (rows, value) => rows.hex(value))

export const texts = (values: readonly string[]): Buffer =>
  binaryArray('text', values, (rows, value) => rows.text(value))

/** Decimals: integers, or text in plain notation. */
export const numerics = (values: readonly (bigint | number | string)[]): Buffer =>
  binaryArray('numeric', values, (rows, value) => rows.numeric(String(value)))

export const int8s = (values: readonly (bigint | number)[]): Buffer =>
  binaryArray('int8', values, (rows, value) => rows.int8(value))

export const instants = (values: readonly (Date | null)[]): Buffer =>
  binaryArray('timestamptz', values, (rows, value) => rows.instant(value.getTime() * 1000))

/** Bytes, from hexadecimal text. */
export const byteas = (values: readonly (string | null)[]): Buffer =>
  binaryArray('bytea', values, (rows, value) => rows.hex(value))

const elementBytes = 20

function binaryArray<T extends NonNullable<unknown>>(
  type: ArrayElement,
  values: readonly (T | null)[],
  write: (rows: RowBuffer, value: T) => void,
): Buffer {
  const rows = createRowBuffer(new ArrayBuffer(24 + values.length * elementBytes))
  rows.array(type, values, (value) => (value === null ? rows.none() : write(rows, value)))
  return rows.slice(4, rows.end())
}

/**
 * Array parameters in Postgres's text format ('{...}').
 *
 * Gains: the driver quotes each element, which took 5 of 30 microseconds per event in the `ingest
 * by COPY` row of `npm run bench`, and most columns need no quotes. Plain version: an array as the
 * parameter.
 */
const special = /["\\]/
const everySpecial = /["\\]/g

/** An array of texts. */
export function textArray(values: readonly string[]): string {
  if (values.length === 0) return '{}'
  const safe = special.test(values.join(''))
    ? values.map((value) => value.replace(everySpecial, '\\$&'))
    : values
  return `{"${safe.join('","')}"}`
}

/** An array of numbers, ids, instants or booleans, which need no quotes. Null stays null. */
export const plainArray = (
  values: readonly (string | number | bigint | boolean | null)[],
): string => `{${values.map((value) => value ?? 'NULL').join(',')}}`

/** An array of UUIDs, each given as 16 latin1 characters, in Postgres's binary format. */
export function uuidArray(values: readonly string[]): Buffer {
  const array = Buffer.allocUnsafe(20 + values.length * 20)
  let at = [1, 0, elementTypes.uuid, values.length, 1].reduce(
    (offset, word) => array.writeInt32BE(word, offset),
    0,
  )
  for (const value of values) {
    at = array.writeInt32BE(16, at)
    at += array.write(value, at, 16, 'latin1')
  }
  return array
}
