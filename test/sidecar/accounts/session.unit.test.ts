import { describe, expect, it } from 'vitest'
import { parseObject } from '../../../core/lib/json.ts'
import { isRational, readSession } from '../../../sidecar/accounts/session.ts'
import { firstCall } from '../signer-bodies.ts'

const read = (text: string) => readSession(parseObject(text)?.['state'], text)

describe('reading a session', () => {
  it('28: keeps every digit of a price above 2^53', () => {
    const text = JSON.stringify(firstCall()).replace(
      '"InitialPricePerUnit":12000',
      '"InitialPricePerUnit": 10000000000000001',
    )
    expect(read(text)?.price).toBe(10_000_000_000_000_001n)
  })

  it('28: does not take the digits of a header that looks like the member', () => {
    const header = {
      'X-Trap': ['"InitialPricePerUnit":10000000000000003', '\\"InitialPricePerUnit":1'],
    }
    const text = JSON.stringify(firstCall({ headers: header })).replace(
      '"InitialPricePerUnit":12000',
      '"InitialPricePerUnit":10000000000000001',
    )
    expect(read(text)?.price).toBe(10_000_000_000_000_001n)
  })

  it('29: reads the instant of a signer in UTC+2 to the millisecond', () => {
    const text = JSON.stringify(
      firstCall({ state: { LastUpdate: '2026-09-14T12:16:17.123456789+02:00' } }),
    )
    expect(read(text)?.at).toBe(1_789_380_977_123)
  })

  it.each([
    ['2026-09-14T10:15:30.123456789Z', 1_789_380_930_123],
    ['2026-09-14T10:15:30.5Z', 1_789_380_930_500],
    ['2026-09-14T10:15:30Z', 1_789_380_930_000],
    ['2024-02-29T23:59:59.999Z', 1_709_251_199_999],
    ['1970-01-01T00:00:00Z', 0],
    ['0000-01-01T00:00:00Z', -62_167_219_200_000],
    ['2026-09-14T10:15:30.Z', null],
    ['2026-13-01T00:00:00Z', null],
    ['2026-09-14 10:15:30Z', null],
    ['', null],
  ])('takes %s as the instant %s', (text, ms) => {
    expect(read(JSON.stringify(firstCall({ state: { LastUpdate: text } })))?.at).toBe(ms)
  })

  it.each([
    ['6000/7', true],
    ['0', true],
    ['49999999880000', true],
    ['1/0', false],
    ['abc', false],
    ['-1', false],
    ['1.5', false],
    ['', false],
    ['9'.repeat(500), false],
  ])('30: takes %s as a balance: %s', (text, expected) => {
    expect(isRational(text)).toBe(expected)
  })
})
