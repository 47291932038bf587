type Words = readonly [number, number, number, number]

const blockBytes = 16
const rounds = 12

/**
 * Chaskey-12 (ISO/IEC 29192-6; Mouha, Mennink and others, "Chaskey: An Efficient MAC Algorithm for
 * 32-bit Microcontrollers", 2014) with all of its 128 bits, under a key of 16 bytes: as long as that
 * is secret, nobody can choose two texts of one tag. Characters of the text count as a byte each:
 * its caller sees to it that they are. The tag is eight UTF-16 units of two bytes each.
 */
export function createChaskey(key: Buffer): (text: string) => string {
  if (key.length !== blockBytes) throw new Error('a Chaskey key has 16 bytes')
  const start: Words = [
    key.readInt32LE(0),
    key.readInt32LE(4),
    key.readInt32LE(8),
    key.readInt32LE(12),
  ]
  const whole = doubled(start)
  const ended = doubled(whole)

  return (text) => {
    // The last block may be a whole one; a mask tells which it is.
    const last = Math.max(0, text.length - 1) & -blockBytes
    const mask = text.length - last === blockBytes ? whole : ended
    let [a, b, c, d] = start
    for (let at = 0; at <= last; at += blockBytes) {
      if (at < last) {
        a ^= word(text, at)
        b ^= word(text, at + 4)
        c ^= word(text, at + 8)
        d ^= word(text, at + 12)
      } else {
        a ^= lastWord(text, at) ^ mask[0]
        b ^= lastWord(text, at + 4) ^ mask[1]
        c ^= lastWord(text, at + 8) ^ mask[2]
        d ^= lastWord(text, at + 12) ^ mask[3]
      }
      for (let round = 0; round < rounds; round++) {
        a = (a + b) | 0
        b = ((b << 5) | (b >>> 27)) ^ a
        a = (a << 16) | (a >>> 16)
        c = (c + d) | 0
        d = ((d << 8) | (d >>> 24)) ^ c
        a = (a + d) | 0
        d = ((d << 13) | (d >>> 19)) ^ a
        c = (c + b) | 0
        b = ((b << 7) | (b >>> 25)) ^ c
        c = (c << 16) | (c >>> 16)
      }
    }
    a ^= mask[0]
    b ^= mask[1]
    c ^= mask[2]
    d ^= mask[3]
    return String.fromCharCode(
      a & 0xffff,
      a >>> 16,
      b & 0xffff,
      b >>> 16,
      c & 0xffff,
      c >>> 16,
      d & 0xffff,
      d >>> 16,
    )
  }
}

/** Times x in the field of 2^128 elements that the paper takes. */
function doubled([a, b, c, d]: Words): Words {
  const low = (a << 1) ^ (d < 0 ? 0x87 : 0)
  return [low, (b << 1) | (a >>> 31), (c << 1) | (b >>> 31), (d << 1) | (c >>> 31)]
}

function word(text: string, at: number): number {
  const low = text.charCodeAt(at) | (text.charCodeAt(at + 1) << 8)
  return low | (text.charCodeAt(at + 2) << 16) | (text.charCodeAt(at + 3) << 24)
}

/** The same where the text may end: behind it stands a 1, then nothing. */
function lastWord(text: string, at: number): number {
  let bytes = 0
  for (let i = at + 3; i >= at; i--)
    bytes = (bytes << 8) | (i < text.length ? text.charCodeAt(i) : Number(i === text.length))
  return bytes
}
