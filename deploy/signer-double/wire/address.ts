// Ethereum's Keccak-256 differs from SHA3-256 (other padding), and node:crypto does not provide it.
const MASK = (1n << 64n) - 1n
const RATE = 136

// Both tables are generated from their definitions (FIPS 202, 3.2.5 and 3.2.2).
function roundConstants(): bigint[] {
  let register = 1
  const nextBit = (): bigint => {
    const bit = BigInt(register & 1)
    register = register & 0x80 ? ((register << 1) ^ 0x171) & 0xff : register << 1
    return bit
  }
  const placed = (_: unknown, j: number): bigint => nextBit() << ((1n << BigInt(j)) - 1n)
  return Array.from({ length: 24 }, () =>
    Array.from({ length: 7 }, placed).reduce((all, bit) => all | bit),
  )
}

function rotationOffsets(): number[] {
  const offsets = Array.from({ length: 25 }, () => 0)
  let [x, y] = [1, 0]
  for (let t = 0; t < 24; t += 1) {
    offsets[x + 5 * y] = (((t + 1) * (t + 2)) / 2) % 64
    ;[x, y] = [y, (2 * x + 3 * y) % 5]
  }
  return offsets
}

const CONSTANTS = roundConstants()
const OFFSETS = rotationOffsets()

function rotate(lane: bigint, by: number): bigint {
  const count = BigInt(by)
  return ((lane << count) | (lane >> (64n - count))) & MASK
}

function permuteOnce(state: readonly bigint[], constant: bigint): bigint[] {
  const lane = (x: number, y: number): bigint => state[(x % 5) + 5 * (y % 5)] ?? 0n
  const parity = (x: number): bigint =>
    lane(x, 0) ^ lane(x, 1) ^ lane(x, 2) ^ lane(x, 3) ^ lane(x, 4)
  const theta = Array.from({ length: 5 }, (_, x) => parity(x + 4) ^ rotate(parity(x + 1), 1))
  const moved = Array.from({ length: 25 }, () => 0n)
  for (let i = 0; i < 25; i += 1) {
    const [x, y] = [i % 5, Math.floor(i / 5)]
    moved[y + 5 * ((2 * x + 3 * y) % 5)] = rotate(lane(x, y) ^ (theta[x] ?? 0n), OFFSETS[i] ?? 0)
  }
  const at = (x: number, y: number): bigint => moved[(x % 5) + 5 * y] ?? 0n
  const chi = moved.map((value, i) => {
    const [x, y] = [i % 5, Math.floor(i / 5)]
    return value ^ (~at(x + 1, y) & MASK & at(x + 2, y))
  })
  return chi.map((value, i) => (i === 0 ? value ^ constant : value))
}

function keccak256(message: Buffer): Buffer {
  const padded = Buffer.alloc((Math.floor(message.length / RATE) + 1) * RATE)
  message.copy(padded)
  padded.writeUInt8(padded.readUInt8(message.length) ^ 0x01, message.length)
  padded.writeUInt8(padded.readUInt8(padded.length - 1) ^ 0x80, padded.length - 1)
  let state = Array.from({ length: 25 }, () => 0n)
  for (let block = 0; block < padded.length; block += RATE) {
    const absorb = (lane: bigint, i: number): bigint =>
      i * 8 < RATE ? lane ^ padded.readBigUInt64LE(block + i * 8) : lane
    state = CONSTANTS.reduce<bigint[]>(permuteOnce, state.map(absorb))
  }
  const digest = Buffer.alloc(32)
  state.slice(0, 4).forEach((lane, i) => digest.writeBigUInt64LE(lane, i * 8))
  return digest
}

/** Writes the 20 bytes as `0x` and 40 hex digits in EIP-55 mixed case. */
export function toChecksumAddress(address: Buffer): string {
  const plain = address.toString('hex')
  const digest = keccak256(Buffer.from(plain)).toString('hex')
  const cased = Array.from(plain, (digit, i) =>
    Number.parseInt(digest.charAt(i), 16) >= 8 ? digit.toUpperCase() : digit,
  )
  return `0x${cased.join('')}`
}
