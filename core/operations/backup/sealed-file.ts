import {
  argon2,
  createCipheriv,
  createDecipheriv,
  createHash,
  hkdfSync,
  randomBytes,
  timingSafeEqual,
} from 'node:crypto'
import { createReadStream, createWriteStream } from 'node:fs'
import { Readable, Transform } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { promisify } from 'node:util'
import { createZstdCompress, createZstdDecompress } from 'node:zlib'
import { DamagedFile } from '../../lib/files/whole-file.ts'

/**
 * A file that only its passphrase opens. The first line names the format; the second, JSON, holds
 * the salt and a check value of the passphrase. Then come frames of compressed bytes, each with its
 * length before it, encrypted by AES-256-GCM. The nonce of a frame is its number, with a mark on
 * the last frame, and both lines are authenticated with each frame: no frame can be changed, moved,
 * removed or added (the STREAM construction of Hoang, Reyhanitabar, Rogaway and Vizár).
 */
const firstLine = 'tollgate-backup 1\n'
const formatName = /^tollgate-backup (\d+)\n/

const frameBytes = 256 * 1024
const tagBytes = 16
const headMaxBytes = 1_024

// RFC 9106 section 4, second choice, in one lane.
const argon = { memory: 65_536, passes: 3, parallelism: 1, tagLength: 32 }
const deriveArgon = promisify(argon2)

/** The passphrase does not open the file. */
export class WrongPassphrase extends Error {}

export interface FileSize {
  readonly bytes: number
  /** Of the file as it is, so that `sha256sum` compares it. */
  readonly sha256: string
}

interface Keys {
  readonly frames: Buffer
  /** Shows whether a passphrase is right, without opening a frame. */
  readonly check: Buffer
}

async function deriveKeys(passphrase: string, salt: Buffer): Promise<Keys> {
  const secret = await deriveArgon('argon2id', { ...argon, message: passphrase, nonce: salt })
  const derive = (use: string): Buffer =>
    Buffer.from(hkdfSync('sha256', secret, '', `tollgate backup ${use}`, 32))
  return { frames: derive('frames'), check: derive('check') }
}

/** Writes bytes to a new file that `passphrase` opens, and flushes it to disk. */
export async function writeSealed(
  path: string,
  passphrase: string,
  bytes: AsyncIterable<Buffer>,
): Promise<FileSize> {
  const salt = randomBytes(16)
  const { frames, check } = await deriveKeys(passphrase, salt)
  const fields = { salt: salt.toString('base64'), check: check.toString('base64') }
  const head = Buffer.from(`${firstLine}${JSON.stringify(fields)}\n`)
  const whole = createHash('sha256')
  let size = 0
  const measure = new Transform({
    transform(chunk: Buffer, _encoding, done) {
      whole.update(chunk)
      size += chunk.length
      done(null, chunk)
    },
  })
  await pipeline(
    Readable.from(bytes, { objectMode: false }),
    createZstdCompress(),
    (compressed: AsyncIterable<Buffer>) => sealFrames(compressed, { key: frames, head }),
    measure,
    createWriteStream(path, { mode: 0o600, flush: true }),
  )
  return { bytes: size, sha256: whole.digest('hex') }
}

interface FrameKey {
  readonly key: Buffer
  readonly head: Buffer
}

async function* sealFrames(
  compressed: AsyncIterable<Buffer>,
  { key, head }: FrameKey,
): AsyncGenerator<Buffer> {
  yield head
  let number = 0
  let rest: Buffer = Buffer.alloc(0)
  const seal = (plain: Buffer, isLast: boolean): Buffer => {
    const cipher = createCipheriv('aes-256-gcm', key, nonceOf(number++, isLast)).setAAD(head)
    const sealed = Buffer.concat([cipher.update(plain), cipher.final()])
    const length = Buffer.alloc(4)
    length.writeUInt32BE(sealed.length + tagBytes)
    return Buffer.concat([length, sealed, cipher.getAuthTag()])
  }
  for await (const chunk of compressed) {
    rest = Buffer.concat([rest, chunk])
    while (rest.length > frameBytes) {
      yield seal(rest.subarray(0, frameBytes), false)
      rest = rest.subarray(frameBytes)
    }
  }
  yield seal(rest, true)
}

function nonceOf(number: number, isLast: boolean): Buffer {
  const nonce = Buffer.alloc(12)
  nonce.writeUIntBE(number, 4, 6)
  nonce[11] = isLast ? 1 : 0
  return nonce
}

/**
 * Yields the bytes that `writeSealed` wrote. Throws WrongPassphrase, or DamagedFile at the first
 * changed or missing byte.
 */
export async function* readSealed(path: string, passphrase: string): AsyncGenerator<Buffer> {
  const file = createByteReader(createReadStream(path, { highWaterMark: frameBytes }))
  const head = await readHead(file)
  const { salt, check } = fieldsOf(head)
  const keys = await deriveKeys(passphrase, salt)
  if (!timingSafeEqual(keys.check, check))
    throw new WrongPassphrase('PASSPHRASE is not the one that the file was written with')
  const frames = Readable.from(openFrames(file, { key: keys.frames, head }), { objectMode: false })
  const plain = createZstdDecompress()
  frames.on('error', (error) => plain.destroy(error)).pipe(plain)
  try {
    yield* plain
  } finally {
    frames.destroy()
  }
}

type ByteReader = ReturnType<typeof createByteReader>

/** Reads a stream in pieces of given lengths. */
function createByteReader(source: AsyncIterable<Buffer>) {
  const chunks = source[Symbol.asyncIterator]()
  let rest: Buffer = Buffer.alloc(0)

  /** Returns the next bytes: fewer only at the end of the stream. */
  async function take(length: number): Promise<Buffer> {
    while (rest.length < length) {
      const next = await chunks.next()
      if (next.done) break
      rest = Buffer.concat([rest, next.value])
    }
    const bytes = rest.subarray(0, length)
    rest = rest.subarray(length)
    return bytes
  }

  return { take }
}

async function readHead(file: ByteReader): Promise<Buffer> {
  const lines: Buffer[] = []
  let line: Buffer[] = []
  for (let size = 0; size < headMaxBytes; size++) {
    const byte = await file.take(1)
    if (byte.length === 0) break
    line.push(byte)
    if (byte[0] !== 10) continue
    lines.push(Buffer.concat(line))
    line = []
    if (lines.length === 1) requireFormat(lines[0] ?? Buffer.alloc(0))
    if (lines.length === 2) return Buffer.concat(lines)
  }
  throw new DamagedFile('this is not a file of `tollgate backup`')
}

function requireFormat(line: Buffer): void {
  const [, version] = formatName.exec(line.toString('latin1')) ?? []
  if (version === undefined) throw new DamagedFile('this is not a file of `tollgate backup`')
  if (line.toString('latin1') !== firstLine)
    throw new DamagedFile(
      `the file has format ${version}, and this release reads format 1; use the release that wrote it`,
    )
}

function fieldsOf(head: Buffer): { readonly salt: Buffer; readonly check: Buffer } {
  try {
    const { salt, check } = JSON.parse(head.toString('latin1').split('\n')[1] ?? '')
    const fields = { salt: Buffer.from(salt, 'base64'), check: Buffer.from(check, 'base64') }
    if (fields.salt.length === 16 && fields.check.length === 32) return fields
  } catch {
    // The next line reports every fault of the head.
  }
  throw new DamagedFile('its head is not whole')
}

async function* openFrames(file: ByteReader, { key, head }: FrameKey): AsyncGenerator<Buffer> {
  for (let number = 0; ; number++) {
    const prefix = await file.take(4)
    const length = prefix.length === 4 ? prefix.readUInt32BE() : 0
    if (prefix.length < 4) throw new DamagedFile('it is cut off: its end is missing')
    if (length < tagBytes || length > frameBytes + tagBytes)
      throw new DamagedFile(`part ${number + 1} was changed`)
    const sealed = await file.take(length)
    if (sealed.length < length) throw new DamagedFile('it is cut off: its end is missing')
    const part = openFrame(sealed, { key, head, number, isLast: false })
    if (part) yield part
    else {
      const last = openFrame(sealed, { key, head, number, isLast: true })
      if (!last) throw new DamagedFile(`part ${number + 1} was changed`)
      if ((await file.take(1)).length > 0)
        throw new DamagedFile('something was added behind its end')
      yield last
      return
    }
  }
}

function openFrame(
  sealed: Buffer,
  { key, head, number, isLast }: FrameKey & { readonly number: number; readonly isLast: boolean },
): Buffer | null {
  const decipher = createDecipheriv('aes-256-gcm', key, nonceOf(number, isLast)).setAAD(head)
  decipher.setAuthTag(sealed.subarray(sealed.length - tagBytes))
  try {
    return Buffer.concat([
      decipher.update(sealed.subarray(0, sealed.length - tagBytes)),
      decipher.final(),
    ])
  } catch {
    return null
  }
}
