import type { Proof } from './document.ts'

/**
 * Computes the root of a tree of RFC 9162 from a leaf and its inclusion path (section 2.1.3.2), in
 * hexadecimal. Returns null if the path cannot belong to such a tree.
 */
export async function rootOfInclusion(
  leaf: Uint8Array,
  { leafIndex, treeSize, inclusionPath }: Omit<Proof, 'day'>,
): Promise<string | null> {
  if (!isPlace(leafIndex, treeSize)) return null
  let node = await sha256(Uint8Array.of(0), leaf)
  let [place, last] = [leafIndex, treeSize - 1]
  for (const sibling of inclusionPath.map(fromHex)) {
    if (last === 0) return null
    if (place % 2 === 1 || place === last) {
      node = await sha256(Uint8Array.of(1), sibling, node)
      // The last node of a level may have no sibling: skip levels until it has one.
      while (place % 2 === 0 && place !== 0) [place, last] = [half(place), half(last)]
    } else node = await sha256(Uint8Array.of(1), node, sibling)
    ;[place, last] = [half(place), half(last)]
  }
  return last === 0 ? toHex(node) : null
}

const isPlace = (index: number, size: number): boolean =>
  Number.isSafeInteger(size) && Number.isSafeInteger(index) && index >= 0 && index < size

const half = (value: number): number => Math.floor(value / 2)

async function sha256(...parts: readonly Uint8Array[]): Promise<Uint8Array> {
  const bytes = new Uint8Array(await new Blob(parts.map((part) => part.slice())).arrayBuffer())
  return new Uint8Array(await crypto.subtle.digest('SHA-256', bytes))
}

const fromHex = (hash: string): Uint8Array =>
  Uint8Array.from(hash.match(/../g) ?? [], (byte) => parseInt(byte, 16))

const toHex = (bytes: Uint8Array): string =>
  Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('')
