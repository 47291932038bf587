import { createReadStream } from 'node:fs'
import { toMessage } from '../../core/lib/process.ts'
import { type JsonObject, parseObject } from '../../core/lib/json.ts'

/** A file does not have the expected content. */
export class FileError extends Error {}

const defaultMax = 1_048_576

/** Reads a JSON object from a file of at most `maxBytes`. Throws a FileError. */
export async function readJsonFile(file: string, maxBytes = defaultMax): Promise<JsonObject> {
  const object = parseObject(await readTextFile(file, maxBytes))
  if (!object) throw new FileError(`${file} is not a JSON object`)
  return object
}

/** Reads a text of at most `maxBytes`. Throws a FileError. */
export async function readTextFile(file: string, maxBytes = defaultMax): Promise<string> {
  const parts: Buffer[] = []
  let bytes = 0
  try {
    for await (const part of createReadStream(file, { end: maxBytes })) {
      if (!Buffer.isBuffer(part)) continue
      parts.push(part)
      bytes += part.length
    }
  } catch (error) {
    throw new FileError(`${file} cannot be read: ${toMessage(error)}`, { cause: error })
  }
  if (bytes > maxBytes) throw new FileError(`${file} is larger than ${maxBytes} bytes`)
  return Buffer.concat(parts).toString('utf8')
}
