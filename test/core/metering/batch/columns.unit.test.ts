import { createHash } from 'node:crypto'
import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { wei } from '../../../../core/lib/money.ts'
import {
  byKey,
  createColumns,
  digestOfBytes,
  digestOfHex,
  readKey,
  pixelsAsNumber,
  readSequence,
} from '../../../../core/metering/batch/parsed-batch.ts'

const sha256 = (text: string): Buffer => createHash('sha256').update(text).digest()

function columnsOf(ids: readonly string[], { pixels = '0', sequence = '0' } = {}) {
  const columns = createColumns(ids.length)
  ids.forEach((eventId, index) =>
    columns.add({
      index,
      eventId,
      pixels,
      sequence,
      session: 0,
      feature: 0,
      from: 0,
      to: 0,
      signedAtMicros: 0,
      fee: wei(1n),
      billableSecs: '1',
      digest: digestOfBytes(eventId),
    }),
  )
  return columns.read()
}

const keyIn = (id: string): Buffer => Buffer.from(readKey(columnsOf([id]), 0), 'latin1')

describe('key of an event', () => {
  it('is the id, if that is a lower-case UUID', () => {
    fc.assert(
      fc.property(fc.uuid(), (id) => {
        expect(keyIn(id)).toEqual(Buffer.from(id.replaceAll('-', ''), 'hex'))
      }),
    )
  })

  it('is the hash of any other id, even if it differs only by a character or in case', () => {
    const near = fc
      .record({
        id: fc.uuid(),
        at: fc.nat(36),
        put: fc.constantFrom('', 'A', 'F', 'g', '-', '--', '/', ':', '`', '0a', 'é'),
      })
      .map(({ id, at, put }) => id.slice(0, at) + put + id.slice(at + 1))
    fc.assert(
      fc.property(fc.oneof(near, fc.string({ minLength: 1 })), (id) => {
        fc.pre(!/^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/.test(id))
        expect(keyIn(id)).toEqual(sha256(id).subarray(0, 16))
      }),
      { numRuns: 1_000 },
    )
  })

  it('has a digest of 128 bits, the same from the bytes and from their full hash', () => {
    fc.assert(
      fc.property(fc.string(), (text) => {
        expect(Buffer.from(digestOfBytes(text), 'latin1')).toEqual(sha256(text).subarray(0, 16))
        expect(digestOfHex(sha256(text).toString('hex'))).toBe(digestOfBytes(text))
      }),
    )
  })
})

describe('sorting tickets by key', () => {
  // Few different characters, so that many ids share a prefix and some are equal.
  const ids = fc.array(fc.stringMatching(/^0000000[0-3]-0[01]00-0000-0000-00000000000[0-3]$/), {
    maxLength: 60,
  })
  const inOrder = (ids: readonly string[]): number[] =>
    [...ids.keys()].sort((a, b) =>
      ids[a] === ids[b] ? a - b : (ids[a] ?? '') < (ids[b] ?? '') ? -1 : 1,
    )
  const places = (count: number) => Uint32Array.from({ length: count }, (_, place) => place)

  it('sorts by the bytes of the keys, and equal keys by arrival', () => {
    fc.assert(
      fc.property(ids, (ids) => {
        expect([...byKey(columnsOf(ids), places(ids.length))]).toEqual(inOrder(ids))
      }),
    )
  })

  it('sorts a batch above the fast limit', () => {
    const ids = Array.from(
      { length: 33_000 },
      (_, n) => `${sha256(String(n % 32_900)).toString('hex', 0, 4)}-0000-0000-0000-000000000000`,
    )
    for (const count of [32_768, 33_000]) {
      expect([...byKey(columnsOf(ids), places(count))]).toEqual(inOrder(ids.slice(0, count)))
    }
  })
})

describe('integer of a ticket', () => {
  it('is exact inside and outside the range of a double', () => {
    fc.assert(
      fc.property(fc.bigInt({ min: 0n, max: 2n ** 63n - 2n }), fc.integer(), (sequence, pixels) => {
        const tickets = columnsOf(['x'], { sequence: String(sequence), pixels: String(pixels) })
        expect(readSequence(tickets, 0)).toBe(sequence)
        expect(tickets.oversized.get(0)?.pixels ?? BigInt(pixelsAsNumber(tickets, 0))).toBe(
          BigInt(pixels),
        )
      }),
    )
  })
})
