import { createHash } from 'node:crypto'
import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  createTree,
  emptyRoot,
  hashLeaf,
  inclusionPath,
  computeRoot,
} from '../../../core/books/receipts/merkle.ts'
import { rootOfInclusion } from '../../../proto/receipts/inclusion.ts'

// Test vectors of the reference implementation of Certificate Transparency for RFC 6962.
const entries = [
  '',
  '00',
  '10',
  '2021',
  '3031',
  '40414243',
  '5051525354555657',
  '606162636465666768696a6b6c6d6e6f',
].map((hex) => Buffer.from(hex, 'hex'))
const roots = [
  '6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d',
  'fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125',
  'aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77',
  'd37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7',
  '4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4',
  '76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef',
  'ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c',
  '5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328',
]
const paths: readonly (readonly [index: number, size: number, path: readonly string[]])[] = [
  [0, 1, []],
  [
    0,
    8,
    [
      '96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7',
      '5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e',
      '6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4',
    ],
  ],
  [
    5,
    8,
    [
      'bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b',
      'ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0',
      'd37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7',
    ],
  ],
  [2, 3, ['fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125']],
]

const hex = (hashes: readonly Buffer[]): string[] => hashes.map((hash) => hash.toString('hex'))
const leaves = entries.map(hashLeaf)

describe('Merkle tree', () => {
  it('has the roots of the RFC 6962 test vectors', () => {
    expect(emptyRoot.toString('hex')).toBe(createHash('sha256').digest('hex'))
    expect(computeRoot([])).toEqual(emptyRoot)
    expect(hex(entries.map((_, i) => computeRoot(leaves.slice(0, i + 1))))).toEqual(roots)
  })

  it.each(paths)("has the test vectors' inclusion path of leaf %i of %i", (index, size, path) => {
    expect(hex(inclusionPath(leaves.slice(0, size), index))).toEqual(path)
  })

  // Leaves are unique, as tickets are.
  const anyTexts = fc.uniqueArray(fc.string({ maxLength: 12 }), { minLength: 1, maxLength: 70 })
  const anyLeaves = anyTexts.map((texts) => texts.map(hashLeaf))

  it('proves each leaf, and no other leaf with the same proof', async () => {
    await fc.assert(
      fc.asyncProperty(anyTexts, fc.nat(), async (texts, n) => {
        const of = texts.map(hashLeaf)
        const root = computeRoot(of).toString('hex')
        const prove = (text: string, leafIndex: number, path: readonly Buffer[]) =>
          rootOfInclusion(Buffer.from(text), {
            leafIndex,
            treeSize: texts.length,
            inclusionPath: hex(path),
          })
        const proved = texts.map((text, index) => prove(text, index, inclusionPath(of, index)))
        expect(new Set(await Promise.all(proved))).toEqual(new Set([root]))
        const index = n % texts.length
        const path = inclusionPath(of, index)
        const others = [...texts.entries()].filter(([other]) => other !== index)
        for (const [other, text] of others) {
          const wrong = [
            prove(text, other, path),
            prove(text, index, path),
            prove(texts[index] ?? text, other, path),
          ]
          expect(await Promise.all(wrong)).not.toContain(root)
        }
      }),
    )
  })

  it('changes its root when a leaf is changed, moved, added or removed', () => {
    fc.assert(
      fc.property(anyLeaves, fc.nat(), (of, n) => {
        const root = computeRoot(of)
        const at = n % of.length
        const another = hashLeaf('a leaf that is longer than the others')
        expect(computeRoot(of.with(at, another)).equals(root)).toBe(false)
        expect(computeRoot(of.toSpliced(at, 1)).equals(root)).toBe(false)
        expect(computeRoot(of.toSpliced(at, 0, another)).equals(root)).toBe(false)
        // Duplicating an odd last leaf does not change the root of some other tree designs.
        expect(computeRoot([...of, of.at(-1) ?? another]).equals(root)).toBe(false)
        const moved = [...of.slice(1), ...of.slice(0, 1)]
        expect(computeRoot(moved).equals(root)).toBe(of.length === 1)
      }),
    )
  })

  it('equals the tree of its chunks for any chunk size', () => {
    fc.assert(
      fc.property(anyLeaves, fc.integer({ min: 0, max: 5 }), (of, log) => {
        const chunk = 2 ** log
        const chunks = createTree()
        for (let i = 0; i < of.length; i += chunk) chunks.add(computeRoot(of.slice(i, i + chunk)))
        expect(chunks.root()).toEqual(computeRoot(of))
      }),
    )
  })

  it('rejects a path that is too long, too short or for an invalid index', async () => {
    const [leaf] = entries
    if (!leaf) throw new Error('no leaf')
    const path = hex(inclusionPath(leaves, 0))
    const prove = (leafIndex: number, treeSize: number, inclusionPath: string[]) =>
      rootOfInclusion(leaf, { leafIndex, treeSize, inclusionPath })
    expect(await prove(0, 8, path)).toBe(roots[7])
    expect(await prove(0, 8, [...path, ...path.slice(0, 1)])).toBe(null)
    expect(await prove(0, 8, path.slice(1))).toBe(null)
    for (const index of [8, -1, 0.5, NaN]) expect(await prove(index, 8, path)).toBe(null)
    expect(await prove(0, Infinity, path)).toBe(null)
  })
})
