import { createHash } from 'node:crypto'
import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { seal as encrypt } from '../../../core/lib/crypto.ts'
import { SealError, createSealing } from '../../../core/shared/sealing/sealing.ts'

const secret = fc.string({ minLength: 32, maxLength: 64 })
const bytes = fc.uint8Array({ maxLength: 200 }).map((array) => Buffer.from(array))
const place = { purpose: 'reply', context: 'idempotency:x' } as const

describe('createSealing', () => {
  it('opens a value with its key, as the current or an earlier one', () => {
    fc.assert(
      fc.property(
        fc.uniqueArray(secret, { minLength: 2, maxLength: 4 }),
        bytes,
        (secrets, plain) => {
          const [first = '', ...others] = secrets
          const sealed = createSealing([first]).seal(plain, place)
          expect(createSealing(secrets).unseal(sealed, place)).toEqual(plain)
          expect(createSealing([...others, first]).unseal(sealed, place)).toEqual(plain)
          expect(() => createSealing(others).unseal(sealed, place)).toThrow(SealError)
        },
      ),
      { numRuns: 30 },
    )
  })

  it('rejects another purpose, another place and a changed byte', () => {
    const sealing = createSealing(['x'.repeat(32)])
    const sealed = sealing.seal(Buffer.from('secret'), place)
    expect(() => sealing.unseal(sealed, { ...place, purpose: 'cursor' })).toThrow(SealError)
    expect(() => sealing.unseal(sealed, { ...place, context: 'idempotency:y' })).toThrow(SealError)
    for (let index = 0; index < sealed.length; index++) {
      const changed = Buffer.from(sealed)
      changed[index] = (changed[index] ?? 0) ^ 1
      expect(() => sealing.unseal(changed, place)).toThrow(SealError)
    }
    expect(() => sealing.unseal(Buffer.alloc(0), place)).toThrow(SealError)
  })

  it('identifies the sealing key in the value and in the error', () => {
    const [old, fresh] = [createSealing(['o'.repeat(32)]), createSealing(['n'.repeat(32)])]
    const sealed = old.seal(Buffer.from('secret'), place)
    expect(old.idOfHead(sealed.subarray(0, 7).toString('hex'))).toBe(old.currentKey().id)
    expect(fresh.idOfHead(sealed.subarray(0, 7).toString('hex'))).toBeNull()
    expect(() => fresh.unseal(sealed, place)).toThrow(old.currentKey().id)
  })

  it('opens values from before keys were derived', () => {
    const whole = createHash('sha256').update('x'.repeat(32)).digest()
    const sealing = createSealing(['n'.repeat(32), 'x'.repeat(32)])
    const firsts = new Set<number>()
    while (!firsts.has(1)) {
      const sealed = encrypt(Buffer.from('secret'), whole, place.context)
      firsts.add(sealed[0] ?? 0)
      expect(sealing.unseal(sealed, place).toString()).toBe('secret')
    }
  })
})
