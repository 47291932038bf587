import { fetchText } from '../../lib/text/fetch.ts'
import { type EthRate, ethRate, parseDecimal18 } from '../../lib/money.ts'
import { type Json, isNumber, isObject, readExactJson } from '../../lib/exact-json.ts'

/** A source of the price of one ETH. `read` throws, with a reason, without a usable price. */
export interface RateSource {
  readonly name: string
  read(): Promise<EthRate>
}

const bounds = { timeoutMs: 3_000, maxBytes: 64 * 1024 }
/**
 * Rejects a broken source that reports more than ten million dollars. The bound also keeps every
 * cost within its column.
 */
const highestRate = 10n ** 25n

/** Parses a positive rate up to `highestRate`; null for anything else. */
export function parseRate(text: string): EthRate | null {
  const [whole = '', fraction = ''] = text.split('.')
  const attos = parseDecimal18(fraction === '' ? text : `${whole}.${fraction.slice(0, 18)}`)
  return attos === null || attos <= 0n || attos > highestRate ? null : ethRate(attos)
}

/** Always returns the same rate, for tests and demonstrations (`RATE_FIXED`). */
export const fixedRateSource = (rate: EthRate): RateSource => ({
  name: 'fixed',
  read: async () => rate,
})

/** Reads `url`. Accepts the response formats of Coinbase and Kraken, and `{"price": ...}`. */
export function httpRateSource(url: string): RateSource {
  const name = new URL(url).host
  return { name, read: async () => rateOf(await fetchText(url, bounds)) }
}

function rateOf(text: string): EthRate {
  const read = readExactJson(text)
  const price = 'value' in read ? priceOf(read.value) : undefined
  const decimal = isNumber(price) ? price.literal : price
  const rate = typeof decimal === 'string' ? parseRate(decimal) : null
  if (rate === null) throw new Error('answered no usable price')
  return rate
}

const member = (value: Json | undefined, name: string): Json | undefined =>
  isObject(value) ? value.get(name) : undefined

function priceOf(answer: Json): Json | undefined {
  const plain = member(answer, 'price')
  if (plain !== undefined) return plain
  const coinbase = member(answer, 'data')
  if (coinbase !== undefined) return isDollars(coinbase) ? member(coinbase, 'amount') : undefined
  return krakenPrice(answer)
}

const isDollars = (data: Json): boolean => (member(data, 'currency') ?? 'USD') === 'USD'

// {"error":[],"result":{"XETHZUSD":{"c":["3012.34","0.01"]}}}: `c` is the last trade; its first
// item is the price.
function krakenPrice(answer: Json): Json | undefined {
  const result = member(answer, 'result')
  if (!isObject(result) || result.size !== 1) return undefined
  const [pair] = result.values()
  const last = member(pair, 'c')
  return Array.isArray(last) ? last[0] : undefined
}
