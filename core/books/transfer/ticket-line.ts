import {
  type EthRate,
  type UsdAttos,
  type Wei,
  ethRate,
  computePrice,
  usdAttos,
  wei,
} from '../../lib/money.ts'
import { canonicalEventId, isUuid, subjectProblem } from '../../shared/ids.ts'

interface TicketPrice {
  readonly cost: UsdAttos
  readonly retail: UsdAttos
  readonly platformFee: UsdAttos
  readonly platformWei: Wei
  readonly rate: { usdAttosPerEth: EthRate; source: string; observedAt: string }
}

/** A line of a ticket file: a ticket of any deployment, with its price. */
export interface TicketRecord {
  readonly eventId: string
  /** First 128 bits of the SHA-256 of the event's bytes, in hexadecimal. */
  readonly digest: string
  readonly externalUserId: string
  /** By the clock of the signer. */
  readonly signedAt: string
  readonly sessionId: string
  readonly sequenceNumber: string
  readonly requestId: string
  readonly manifestId: string
  readonly appName: string
  readonly pipeline: string
  readonly modelId: string
  readonly fee: Wei
  readonly price: TicketPrice | null
  readonly chargeId: string | null
  readonly billableSecs: string
  readonly pixels: string
  readonly numTickets: number
  readonly orchAddress: string
  readonly orchUrl: string
  readonly replayed: boolean
  readonly emittedAt: string | null
  readonly statedUsd: string | null
  readonly receivedAt: string
}

type Fields = Readonly<Record<string, unknown>>

const instant = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{6}Z$/
const maxFee = 10n ** 27n
const maxAttos = 10n ** 38n - 1n
const maxAheadMs = 10n ** 12n
const maxSequence = 2n ** 63n - 2n
const maxTextBytes = 1_024

/**
 * Parses a line. Returns the reason when it is not a ticket. Strict, because only our own exports
 * write such files.
 */
export function parseTicketLine(line: string): TicketRecord | string {
  try {
    const value: unknown = JSON.parse(line)
    return isFields(value) ? readTicket(value) : 'it is not a JSON object'
  } catch (error) {
    return error instanceof SyntaxError ? 'it is not JSON' : messageOf(error)
  }
}

const isFields = (value: unknown): value is Fields =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

const messageOf = (thrown: unknown): string =>
  thrown instanceof Error ? thrown.message : String(thrown)

// Thrown only by the functions below and caught only in `parseTicketLine`.
const fault = (name: string, expected: string): Error => new Error(`${name} is not ${expected}`)

function readTicket(fields: Fields): TicketRecord {
  const fee = wei(integer(fields, 'feeWei', maxFee))
  const externalUserId = matching(fields, 'user', /^[^]+$/)
  const problem = subjectProblem(externalUserId)
  if (problem !== null || externalUserId !== externalUserId.trim())
    throw fault('user', 'an external user id')
  return {
    eventId: canonicalEventId(matching(fields, 'id', /^[^]{1,200}$/)),
    digest: matching(fields, 'digest', /^[0-9a-f]{32}$/),
    externalUserId,
    signedAt: signerTime(fields),
    sessionId: matching(fields, 'session', /^[^]{1,128}$/),
    sequenceNumber: integer(fields, 'sequence', maxSequence).toString(),
    requestId: text(fields, 'request'),
    manifestId: text(fields, 'manifest'),
    appName: text(fields, 'app'),
    pipeline: text(fields, 'pipeline'),
    modelId: text(fields, 'model'),
    fee,
    price: priceIn(fields, fee),
    chargeId: chargeIn(fields),
    billableSecs: matching(fields, 'billableSecs', /^-?\d{1,12}(?:\.\d{1,30})?$/),
    pixels: matching(fields, 'pixels', /^-?\d{1,19}$/),
    numTickets: Number(integer(fields, 'tickets', 0x7fff_ffffn)),
    orchAddress: text(fields, 'orchAddress'),
    orchUrl: text(fields, 'orchUrl'),
    replayed: matching(fields, 'replayed', /^(?:true|false)$/) === 'true',
    statedUsd:
      fields['statedUsd'] === null
        ? null
        : matching(fields, 'statedUsd', /^\d{1,30}(?:\.\d{1,18})?$/),
    emittedAt: fields['emittedAt'] === null ? null : time(fields, 'emittedAt'),
    receivedAt: time(fields, 'receivedAt'),
  }
}

/** Checks that the cost is the fee at the rate, because otherwise the line was altered. */
function priceIn(fields: Fields, fee: Wei): TicketRecord['price'] {
  const names = ['costAttos', 'rateAttosPerEth', 'rateSource', 'rateObservedAt']
  if (names.every((name) => fields[name] === null)) return null
  const rate = {
    usdAttosPerEth: ethRate(integer(fields, 'rateAttosPerEth', 10n ** 37n)),
    source: matching(fields, 'rateSource', /^[^]{1,300}$/),
    observedAt: time(fields, 'rateObservedAt'),
  }
  const cost = usdAttos(integer(fields, 'costAttos', maxAttos))
  if (rate.usdAttosPerEth === 0n || cost !== computePrice(fee, rate.usdAttosPerEth))
    throw fault('costAttos', 'the fee at its rate')
  if (rate.observedAt > signerTime(fields)) throw fault('rateObservedAt', 'before the ticket')
  return {
    cost,
    rate,
    retail: usdAttos(integer(fields, 'retailAttos', maxAttos)),
    platformFee: usdAttos(integer(fields, 'platformFeeAttos', maxAttos)),
    platformWei: wei(integer(fields, 'platformFeeWei', maxAttos)),
  }
}

function chargeIn(fields: Fields): string | null {
  const charge = fields['charge']
  if (charge === null) return null
  if (typeof charge !== 'string' || !isUuid(charge)) throw fault('charge', 'a UUID')
  return charge
}

function matching(fields: Fields, name: string, syntax: RegExp): string {
  const value = fields[name]
  if (
    typeof value !== 'string' ||
    !syntax.test(value) ||
    !value.isWellFormed() ||
    value.includes('\u0000')
  )
    throw fault(name, 'well-formed')
  return value
}

function text(fields: Fields, name: string): string {
  const value = matching(fields, name, /^[^]*$/)
  if (Buffer.byteLength(value) > maxTextBytes) throw fault(name, `at most ${maxTextBytes} bytes`)
  return value
}

function integer(fields: Fields, name: string, max: bigint): bigint {
  const value = BigInt(matching(fields, name, /^(?:0|[1-9]\d{0,39})$/))
  if (value > max) throw fault(name, `at most ${max}`)
  return value
}

/** Converts an instant of a ticket line, with six decimals, to microseconds since 1970. */
export const toMicros = (text: string): number =>
  Date.parse(`${text.slice(0, 23)}Z`) * 1000 + Number(text.slice(23, 26))

/**
 * Converts `signedAt` from the app's clock, ahead by `clockMs` if present, to the signer's clock.
 */
function signerTime(fields: Fields): string {
  const signedAt = time(fields, 'signedAt')
  const aheadMs = fields['clockMs'] ?? null
  if (aheadMs === null) return signedAt
  const ms =
    Date.parse(`${signedAt.slice(0, 23)}Z`) - Number(integer(fields, 'clockMs', maxAheadMs))
  return `${new Date(ms).toISOString().slice(0, 23)}${signedAt.slice(23)}`
}

function time(fields: Fields, name: string): string {
  const value = matching(fields, name, instant)
  if (
    Number.isNaN(Date.parse(value)) ||
    new Date(value).toISOString().slice(0, 19) !== value.slice(0, 19)
  )
    throw fault(name, 'an instant')
  return value
}
