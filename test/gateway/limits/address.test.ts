import { isIP } from 'node:net'
import * as fc from 'fast-check'
import { describe, expect, it, onTestFinished } from 'vitest'
import { createLog } from '../../../core/lib/log.ts'
import { createMetrics } from '../../../core/lib/metrics.ts'
import { toNetwork } from '../../../core/lib/network/addresses.ts'
import { readAddress, parseAddress } from '../../../gateway/limits/address.ts'
import { startHarness } from '../support.ts'

describe('address of a request', () => {
  const request = (forwarded: string | undefined, remoteAddress = '10.0.0.1') => ({
    raw: { socket: { remoteAddress }, headers: { 'x-forwarded-for': forwarded } },
  })

  it.each([
    [0, '203.0.113.1', '10.0.0.1'],
    [1, '198.51.100.1, 203.0.113.1', '203.0.113.1'],
    [2, 'made up, 198.51.100.1, 203.0.113.1', '198.51.100.1'],
    [3, '198.51.100.1, 203.0.113.1', '198.51.100.1'],
    [1, undefined, '10.0.0.1'],
    [1, 'nonsense', '10.0.0.1'],
    [1, '203.0.113.1:5678', '203.0.113.1'],
    [1, '[2001:db8:1:2::5]:443', '2001:db8:1:2::/64'],
    [1, '"[2001:db8:1:2::5]"', '2001:db8:1:2::/64'],
    [1, 'fe80::1%eth0', 'fe80:0:0:0::/64'],
    [1, '203.0.113.1:https', '10.0.0.1'],
    [1, '[203.0.113.1', '10.0.0.1'],
    [1, '999.0.113.1:80', '10.0.0.1'],
    [1, 'unknown', '10.0.0.1'],
    [1, '2001:db8:1:2::5', '2001:db8:1:2::/64'],
  ])('behind %i trusted proxies with X-Forwarded-For %s is %s', (hops, forwarded, expected) => {
    expect(readAddress(request(forwarded), hops)).toBe(expected)
  })

  it.each([
    ['::ffff:192.0.2.1', '192.0.2.1'],
    ['2001:0db8:0000:0042::1', '2001:db8:0:42::/64'],
    ['::1', '0:0:0:0::/64'],
    ['fe80::1%eth0', 'fe80:0:0:0::/64'],
    ['2001:db8::', '2001:db8:0:0::/64'],
    ['::ffff:c000:201', '192.0.2.1'],
    ['0:0:0:0:0:FFFF:192.0.2.1', '192.0.2.1'],
    ['64:ff9b::192.0.2.1', '64:ff9b:0:0::/64'],
  ])('%s counts as %s', (address, expected) => {
    expect(toNetwork(address)).toBe(expected)
  })
})

describe('address in X-Forwarded-For', () => {
  const v4 = fc.ipV4()
  const port = fc.option(fc.integer({ min: 0, max: 65_535 }), { nil: undefined })
  const at = (text: string, portNumber: number | undefined): string =>
    portNumber === undefined ? text : `${text}:${portNumber}`

  it('is read with and without port, brackets and zone', () => {
    fc.assert(
      fc.property(v4, port, (address, portNumber) => {
        expect(parseAddress(at(address, portNumber))).toBe(address)
      }),
    )
    fc.assert(
      fc.property(fc.ipV6(), port, fc.constantFrom('', '%eth0', '%25eth0'), (address, n, zone) => {
        expect(parseAddress(at(`[${address}${zone}]`, n))).toBe(address)
        expect(parseAddress(address + zone)).toBe(address)
      }),
    )
  })

  it('is the one that the trusted proxy wrote, after any client input', () => {
    const invented = fc.array(
      fc.oneof(
        fc.string(),
        v4,
        fc.ipV6(),
        fc.constantFrom(
          'unknown',
          '_hidden',
          '"[2001:db8::1]:80"',
          'for=192.0.2.1',
          '::ffff:1.2.3.4',
        ),
      ),
      { maxLength: 60 },
    )
    const hop = fc.oneof(v4, fc.ipV6())
    fc.assert(
      fc.property(invented, fc.tuple(hop, port), fc.boolean(), (before, [address, n], asLines) => {
        const written =
          isIP(address) === 6 && n !== undefined ? `[${address}]:${n}` : at(address, n)
        const header = asLines ? [...before, written] : [...before, written].join(', ')
        const request = {
          raw: { socket: { remoteAddress: '10.0.0.1' }, headers: { 'x-forwarded-for': header } },
        }
        expect(readAddress(request, 1)).toBe(toNetwork(address))
        expect(readAddress(request, 0)).toBe('10.0.0.1')
        for (const hops of [2, 5]) expect(readAddress(request, hops)).not.toBe('')
      }),
    )
  })

  it('counts an IPv6 address by its first 64 bits in any spelling', () => {
    fc.assert(
      fc.property(fc.ipV6(), (address) => {
        const { hostname } = new URL(`http://[${address}]`)
        expect(toNetwork(hostname.slice(1, -1))).toBe(toNetwork(address))
      }),
    )
  })

  it('returns undefined for anything else', () => {
    fc.assert(
      fc.property(fc.string(), (text) => {
        const address = parseAddress(text)
        expect(address === undefined || isIP(address) > 0).toBe(true)
      }),
    )
  })

  it('is reported once and counted when no proxy is configured', async () => {
    const lines: string[] = []
    const log = createLog({ level: 'warn', name: 'gateway' }, { write: (line) => lines.push(line) })
    const metrics = createMetrics('gateway')
    const harness = await startHarness({ log, metrics })
    onTestFinished(() => harness.stop())
    for (let i = 0; i < 3; i++)
      await harness.ask('GET', '/health', { headers: { 'x-forwarded-for': '203.0.113.9' } })
    expect(lines.filter((line) => line.includes('TRUSTED_PROXY_HOPS'))).toHaveLength(1)
    expect(await metrics.metrics()).toMatch(/tollgate_gateway_forwarded_ignored_total\S* 3/)
  })
})
