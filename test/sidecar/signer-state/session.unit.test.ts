import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { parseObject } from '../../../core/lib/json.ts'
import { isRational, parseSignerTime, readSession } from '../../../sidecar/signer-state/session.ts'
import { firstCall } from '../signer-bodies.ts'

const read = (text: string) => readSession(parseObject(text)?.['state'], text)

describe('readSession', () => {
  it('28: keeps every digit of a price above 2^53', () => {
    const text = JSON.stringify(firstCall()).replace(
      '"InitialPricePerUnit":12000',
      '"InitialPricePerUnit": 10000000000000001',
    )
    expect(read(text)?.price).toBe(10_000_000_000_000_001n)
  })

  it('28: ignores digits in a header that resembles the member', () => {
    const header = {
      'X-Trap': ['"InitialPricePerUnit":10000000000000003', '\\"InitialPricePerUnit":1'],
    }
    const text = JSON.stringify(firstCall({ headers: header })).replace(
      '"InitialPricePerUnit":12000',
      '"InitialPricePerUnit":10000000000000001',
    )
    expect(read(text)?.price).toBe(10_000_000_000_000_001n)
  })

  it('29: reads the instant of a signer in UTC+2 to the nanosecond', () => {
    const text = JSON.stringify(
      firstCall({ state: { LastUpdate: '2026-09-14T12:16:17.123456789+02:00' } }),
    )
    expect(read(text)).toMatchObject({ seconds: 1_789_380_977, nanos: 123_456_789 })
  })

  it.each([
    ['2026-09-14T10:15:30.123456789Z', 1_789_380_930, 123_456_789],
    ['2026-09-14T10:15:30.5Z', 1_789_380_930, 500_000_000],
    ['2026-09-14T10:15:30Z', 1_789_380_930, 0],
    ['2026-09-14T10:15:30.000000001-05:30', 1_789_400_730, 1],
    ['2024-02-29T23:59:59.999Z', 1_709_251_199, 999_000_000],
    ['1970-01-01T00:00:00Z', 0, 0],
    ['0001-01-01T00:00:00Z', -62_135_596_800, 0],
    ['0000-12-31T23:00:00-01:00', -62_135_596_800, 0],
    ['9999-12-31T23:59:59.999999999Z', 253_402_300_799, 999_999_999],
  ])('reads %s as the instant %s and %s', (text, seconds, nanos) => {
    expect(read(JSON.stringify(firstCall({ state: { LastUpdate: text } })))).toMatchObject({
      isReadable: true,
      seconds,
      nanos,
    })
  })

  it.each([
    '2026-09-14T10:15:30.Z',
    '2026-09-14T10:15:30.1234567890Z',
    '2026-09-14T10:15:30',
    '2026-09-14T10:15:30Zx',
    '2026-09-14T10:15:30+2:00',
    '2026-13-01T00:00:00Z',
    '2026-02-29T00:00:00Z',
    '2026-09-14T24:00:00Z',
    '2026-09-14 10:15:30Z',
    '0000-12-31T23:59:59.999999999Z',
    '0001-01-01T00:00:00+00:01',
    '9999-12-31T23:59:59-00:01',
    '',
  ])('rejects the time %s', (text) => {
    const session = read(JSON.stringify(firstCall({ state: { LastUpdate: text } })))
    expect(session?.isReadable).toBe(false)
  })

  it('agrees with Date on every instant', () => {
    const instants = fc.date({ min: new Date(0), max: new Date('9999-12-31'), noInvalidDate: true })
    fc.assert(
      fc.property(instants, (instant) => {
        const { seconds, nanos } = parseSignerTime(instant.toISOString()) ?? {
          seconds: NaN,
          nanos: 0,
        }
        expect(seconds * 1000 + nanos / 1_000_000).toBe(instant.getTime())
      }),
    )
  })

  it.each([
    ['no id', { StateID: undefined }],
    ['an id that a database cannot store', { StateID: 'a\u0000b' }],
    ['no number', { SequenceNumber: -1 }],
    ['no time', { LastUpdate: 3 }],
  ])('marks a state with %s as unreadable', (_what, state) => {
    expect(read(JSON.stringify(firstCall({ state })))?.isReadable).toBe(false)
  })

  it('drops an application that a database cannot store', () => {
    const app = (App: unknown) => read(JSON.stringify(firstCall({ state: { App } })))?.app
    expect([
      app('acme/echo'),
      app('a\u0000b'),
      app('\ud800'),
      app('x'.repeat(300)),
      app(7),
    ]).toEqual(['acme/echo', '', '', '', ''])
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
    [`${'9'.repeat(172)}/${'7'.repeat(160)}`, true],
    [`${2n ** 256n - 1n}${2n ** 256n - 1n}/${2n ** 256n - 1n}${2n ** 256n - 1n}`, true],
    ['9'.repeat(1_001), false],
    [`${'9'.repeat(1_000)}/`, false],
  ])('30: accepts %s as a balance: %s', (text, expected) => {
    expect(isRational(text)).toBe(expected)
  })
})
