import { type JsonObject, isObject } from '../../../../core/lib/json.ts'
import { FileError, readJsonFile } from '../../json-file.ts'

/** Reads the files of a receipt check. They are untrusted. */

export interface ProofDocument {
  readonly day: string
  readonly leafIndex: number
  readonly treeSize: number
  readonly inclusionPath: readonly Buffer[]
}

/** The stored answer of the receipt's route. */
export interface ReceiptDocument {
  readonly receipt: string
  readonly proof: ProofDocument | null
  readonly root: string | null
}

export interface Jwk extends JsonObject {
  readonly kid: string
}

export interface RootDocument {
  readonly day: string
  readonly statement: string
}

const rootsMaxBytes = 64 * 1024 * 1024
// A tree of 2^64 leaves.
const pathMax = 64

const textIn = (object: JsonObject, name: string, file: string): string => {
  const value = object[name]
  if (typeof value !== 'string') throw new FileError(`${file} has no ${name}`)
  return value
}

/** Reads a receipt, with its proof if present. Throws a FileError. */
export async function readReceipt(file: string): Promise<ReceiptDocument> {
  const object = await readJsonFile(file)
  const { proof = null, root = null } = object
  if ((proof === null) !== (root === null))
    throw new FileError(`${file} has only one of proof and root; both are needed`)
  if (root !== null && typeof root !== 'string') throw new FileError(`${file} has a bad root`)
  return {
    receipt: textIn(object, 'receipt', file),
    proof: proof === null ? null : toProof(proof, file),
    root,
  }
}

function toProof(proof: unknown, file: string): ProofDocument {
  const bad = new FileError(`${file} has a bad proof`)
  if (!isObject(proof)) throw bad
  const { leafIndex, treeSize, inclusionPath: path } = proof
  if (typeof leafIndex !== 'number' || typeof treeSize !== 'number') throw bad
  if (!Array.isArray(path) || path.length > pathMax) throw bad
  const inclusionPath = path.map((hash: unknown) => {
    if (typeof hash !== 'string' || !/^[0-9a-f]{64}$/.test(hash)) throw bad
    return Buffer.from(hash, 'hex')
  })
  return { day: textIn(proof, 'day', file), leafIndex, treeSize, inclusionPath }
}

/** Reads the keys of a JWK set (RFC 7517 section 5). Throws a FileError. */
export const readKeys = async (file: string): Promise<Jwk[]> =>
  keysIn(await readJsonFile(file), file)

export function keysIn({ keys }: JsonObject, from: string): Jwk[] {
  if (!Array.isArray(keys)) throw new FileError(`${from} is not a JWK set: it has no keys`)
  return keys.filter(isJwk)
}

const isJwk = (key: unknown): key is Jwk => isObject(key) && typeof key['kid'] === 'string'

/** Reads roots in the format of the route and of `tollgate receipt roots`. Throws a FileError. */
export async function readRoots(file: string): Promise<RootDocument[]> {
  const { roots } = await readJsonFile(file, rootsMaxBytes)
  if (!Array.isArray(roots)) throw new FileError(`${file} has no roots`)
  return roots.map((root: unknown) => {
    if (!isObject(root)) throw new FileError(`${file} has a malformed root`)
    return { day: textIn(root, 'day', file), statement: textIn(root, 'statement', file) }
  })
}
