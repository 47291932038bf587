/**
 * The few protocol buffer messages of lp_rpc.proto that a gateway puts into `orchestrator`:
 * OrchestratorInfo with its TicketParams, PriceInfo and AuthToken.
 */
export type Orchestrator = Readonly<{
  /** Service URI of the orchestrator. */
  url: string
  /** `0x` and 40 hex digits, any case. */
  address: string
  recipient: string
  /** recipientRandHash, `0x` and hex: the ticket session; a refresh brings a new one. */
  recipientRandHash: string
  /** Session id of the orchestrator's auth token. */
  authSessionId: string
  /** Wei per `pixelsPerUnit` units. */
  pricePerUnit: bigint
  pixelsPerUnit: bigint
}>

type Field = bigint | Buffer
type Fields = ReadonlyMap<number, Field>

function readVarint(bytes: Buffer, start: number): { value: bigint; next: number } {
  let value = 0n
  for (let i = 0; i < 10; i += 1) {
    const byte = bytes[start + i]
    if (byte === undefined) break
    value |= BigInt(byte & 0x7f) << BigInt(7 * i)
    if (byte < 0x80) return { value: BigInt.asUintN(64, value), next: start + i + 1 }
  }
  throw new SyntaxError('protobuf: a varint does not end')
}

function readField(bytes: Buffer, start: number, wireType: number): { value: Field; next: number } {
  if (wireType === 0) return readVarint(bytes, start)
  const fixed = wireType === 1 ? 8 : 4
  const head = wireType === 2 ? readVarint(bytes, start) : { value: BigInt(fixed), next: start }
  const end = head.next + Number(head.value)
  if (![1, 2, 5].includes(wireType)) throw new SyntaxError(`protobuf: wire type ${wireType}`)
  if (end > bytes.length) throw new SyntaxError('protobuf: a field is cut short')
  return { value: bytes.subarray(head.next, end), next: end }
}

/** Fields by number, the last one of each; unknown fields do no harm. */
function readFields(bytes: Buffer): Fields {
  const fields = new Map<number, Field>()
  let at = 0
  while (at < bytes.length) {
    const tag = readVarint(bytes, at)
    const { value, next } = readField(bytes, tag.next, Number(tag.value & 7n))
    fields.set(Number(tag.value >> 3n), value)
    at = next
  }
  return fields
}

const bytesOf = (fields: Fields, number: number): Buffer => {
  const value = fields.get(number)
  return Buffer.isBuffer(value) ? value : Buffer.alloc(0)
}

const integerOf = (fields: Fields, number: number): bigint => {
  const value = fields.get(number)
  return typeof value === 'bigint' ? BigInt.asIntN(64, value) : 0n
}

const hex = (bytes: Buffer): string => `0x${bytes.toString('hex')}`

/** Reads an OrchestratorInfo; absent fields come out empty. Throws a SyntaxError on bad bytes. */
export function decodeOrchestrator(bytes: Buffer): Orchestrator {
  const info = readFields(bytes)
  const ticketParams = readFields(bytesOf(info, 2))
  const price = readFields(bytesOf(info, 3))
  return {
    url: bytesOf(info, 1).toString(),
    address: hex(bytesOf(info, 4)),
    recipient: hex(bytesOf(ticketParams, 1)),
    recipientRandHash: hex(bytesOf(ticketParams, 4)),
    authSessionId: bytesOf(readFields(bytesOf(info, 6)), 2).toString(),
    pricePerUnit: integerOf(price, 1),
    pixelsPerUnit: integerOf(price, 2),
  }
}

function varint(value: bigint): Buffer {
  const out: number[] = []
  let rest = BigInt.asUintN(64, value)
  while (rest > 0x7fn) {
    out.push(Number(rest & 0x7fn) | 0x80)
    rest >>= 7n
  }
  return Buffer.from([...out, Number(rest)])
}

function field(number: number, value: bigint | Buffer | string): Buffer {
  if (typeof value === 'bigint') return Buffer.concat([varint(BigInt(number << 3)), varint(value)])
  const bytes = Buffer.from(value)
  const tag = varint(BigInt((number << 3) | 2))
  return Buffer.concat([tag, varint(BigInt(bytes.length)), bytes])
}

const unhex = (text: string): Buffer => Buffer.from(text.replace(/^0x/i, ''), 'hex')

/** Writes what `decodeOrchestrator` reads. */
export function encodeOrchestrator(orchestrator: Orchestrator): Buffer {
  const { recipient, recipientRandHash, pricePerUnit, pixelsPerUnit } = orchestrator
  const ticketParams = [field(1, unhex(recipient)), field(4, unhex(recipientRandHash))]
  return Buffer.concat([
    field(1, orchestrator.url),
    field(2, Buffer.concat(ticketParams)),
    field(3, Buffer.concat([field(1, pricePerUnit), field(2, pixelsPerUnit)])),
    field(4, unhex(orchestrator.address)),
    field(6, field(2, orchestrator.authSessionId)),
  ])
}
