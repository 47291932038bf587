import { hash } from 'node:crypto'

/**
 * Merkle trees of RFC 9162 section 2.1 (same as RFC 6962) with SHA-256. A leaf is hashed with
 * prefix byte 0, a node with prefix byte 1. A tree of n leaves splits at the largest power of two
 * below n. Hashes are 32 bytes.
 */

const leafPrefix = Buffer.of(0)
const nodePrefix = Buffer.of(1)

export const hashLeaf = (data: string | Buffer): Buffer =>
  hash('sha256', Buffer.concat([leafPrefix, Buffer.from(data)]), 'buffer')

const hashNode = (left: Buffer, right: Buffer): Buffer =>
  hash('sha256', Buffer.concat([nodePrefix, left, right]), 'buffer')

/** Root of an empty tree. */
export const emptyRoot: Buffer = hash('sha256', '', 'buffer')

/** Computes the root of a tree from the hashes of its leaves, in order. */
export function computeRoot(leaves: readonly Buffer[]): Buffer {
  const tree = createTree()
  for (const leaf of leaves) tree.add(leaf)
  return tree.root()
}

/** A tree that grows leaf by leaf and stores one hash per level. */
export function createTree() {
  // Roots of complete subtrees, largest first. Their sizes are the binary digits of the number of
  // leaves.
  const subtrees: Buffer[] = []
  let size = 0

  function add(leaf: Buffer): void {
    let node = leaf
    for (let rest = size; rest % 2 === 1; rest = Math.floor(rest / 2))
      node = hashNode(subtrees.pop() ?? node, node)
    subtrees.push(node)
    size++
  }

  const root = (): Buffer =>
    subtrees.length === 0 ? emptyRoot : subtrees.reduceRight((right, left) => hashNode(left, right))

  return { add, root, size: () => size }
}

/** Returns the inclusion path of a leaf, from its sibling upwards (RFC 9162 section 2.1.3.1). */
export function inclusionPath(leaves: readonly Buffer[], index: number): Buffer[] {
  if (leaves.length <= 1) return []
  const middle = splitOf(leaves.length)
  const [left, right] = [leaves.slice(0, middle), leaves.slice(middle)]
  return index < middle
    ? [...inclusionPath(left, index), computeRoot(right)]
    : [...inclusionPath(right, index - middle), computeRoot(left)]
}

/** Returns the largest power of two below `size`, which is at least two. */
function splitOf(size: number): number {
  let split = 1
  while (split * 2 < size) split *= 2
  return split
}
