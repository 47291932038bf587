import { randomBytes } from 'node:crypto'
import { describe, expect, it } from 'vitest'
import { createChaskey } from '../../../sidecar/identity/chaskey.ts'

const key = Buffer.from(
  '33 34 3d 83 9f 38 9f 00 4f e6 98 23 39 cf 7a 41'.replaceAll(' ', ''),
  'hex',
)

/** The tag as the authors print it: four words, of the text 00 01 02 ... of that many bytes. */
function wordsOf(length: number): string {
  const text = Buffer.from(Array.from({ length }, (_, i) => i)).toString('latin1')
  const tag = Buffer.from(createChaskey(key)(text), 'utf16le')
  return tag.swap32().toString('hex').toUpperCase()
}

describe('Chaskey-12', () => {
  // From the authors' reference, mouha.be/chaskey.
  it.each([
    [15, '03CFB44B283C8163FCA71448C40A0AEA'],
    [16, '5DD0E2A9FB5EAC8C633A392E500C36F3'],
    [17, '8B5F6D5A202314F6220923689639E606'],
    [31, '1D3D30B101D74FCA3B2EB54CD8CD36B4'],
    [32, '7796278407C647FADD752C0FD2F5A799'],
    [33, 'D74BB8672C0DFB3AB697E9CD5658EDDA'],
    [48, 'F36E748B8F34677F1E00BA1BDD7DA46D'],
    [56, '9AB661917DAF7DFF868090AE35B7D6C6'],
    [63, '2DD072E142B89EFEFB26B615049AA451'],
  ])('agrees with the published tag of %d bytes', (length, expected) => {
    expect(wordsOf(length)).toBe(expected)
  })

  it('gives every length, and every last byte, a tag of its own', () => {
    const tagOf = createChaskey(randomBytes(16))
    const texts = Array.from({ length: 200 }, (_, i) =>
      ['', 'A', '\u0001'].map((end) => 'x'.repeat(i) + end),
    )
    const tags = new Set(texts.flat().map(tagOf))
    expect(tags.size).toBe(new Set(texts.flat()).size)
  })

  it('depends on the key', () => {
    const [one, other] = [createChaskey(randomBytes(16)), createChaskey(randomBytes(16))]
    expect(one('svc_ak_')).not.toBe(other('svc_ak_'))
    expect(() => createChaskey(randomBytes(15))).toThrow('16 bytes')
  })
})
