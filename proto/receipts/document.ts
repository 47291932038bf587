import type { JWK } from 'jose'
import { isObject, parseObject } from '../../core/lib/json.ts'

/** Reads receipts, keys and roots from untrusted texts. Errors are for the reader. */

export interface Proof {
  readonly day: string
  readonly leafIndex: number
  readonly treeSize: number
  /** Hexadecimal hashes. */
  readonly inclusionPath: readonly string[]
}

/** A receipt as its route returns it, or as the command line stores it. */
export interface ReceiptDocument {
  readonly receipt: string
  readonly proof: Proof | null
  readonly root: string | null
}

// A tree of 2^64 leaves.
const pathMax = 64
const isHash = (value: unknown): value is string =>
  typeof value === 'string' && /^[0-9a-f]{64}$/.test(value)

/** Reads a receipt. Throws if the text is not a receipt. */
export function readReceipt(text: string): ReceiptDocument {
  const object = parseObject(text)
  if (!object)
    throw new Error('This is not a JSON object. Use the whole answer of the receipt’s route.')
  const { receipt, proof = null, root = null } = object
  if (typeof receipt !== 'string') throw new Error('The JSON has no receipt.')
  if (root !== null && typeof root !== 'string') throw new Error('The root is not a text.')
  if ((proof === null) !== (root === null))
    throw new Error('The JSON has only one of proof and root. Both are needed.')
  return { receipt, proof: proof === null ? null : toProof(proof), root }
}

function toProof(value: unknown): Proof {
  if (isObject(value)) {
    const { day, leafIndex, treeSize, inclusionPath } = value
    if (
      typeof day === 'string' &&
      typeof leafIndex === 'number' &&
      typeof treeSize === 'number' &&
      Array.isArray(inclusionPath) &&
      inclusionPath.length <= pathMax &&
      inclusionPath.every(isHash)
    )
      return { day, leafIndex, treeSize, inclusionPath }
  }
  throw new Error('The proof has another form than that of a receipt.')
}

export type Key = JWK & { readonly kid: string }

/** Reads the public keys of a JWK set (RFC 7517 section 5). Throws if the text is not a set. */
export function readKeys(text: string): Key[] {
  const keys = parseObject(text)?.['keys']
  if (!Array.isArray(keys)) throw new Error('The keys are not a JWK set.')
  return keys.filter((key): key is Key => isObject(key) && typeof key['kid'] === 'string')
}

/** The signed root of an app's day. */
export interface RootDocument {
  readonly day: string
  readonly statement: string
}

/** Reads roots in the format of their route. Throws if the text has no roots. */
export function readRoots(text: string): RootDocument[] {
  const roots = parseObject(text)?.['roots']
  if (!Array.isArray(roots)) throw new Error('The JSON has no roots.')
  return roots.map((root: unknown) => {
    const { day, statement } = isObject(root) ? root : {}
    if (typeof day !== 'string' || typeof statement !== 'string')
      throw new Error('A root has no day or no statement.')
    return { day, statement }
  })
}
