import { createServer, type RequestListener } from 'node:http'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createLog } from '../../../../core/lib/log.ts'
import { listen } from '../../../../core/lib/http.ts'
import { ethRate, formatDecimal18 } from '../../../../core/lib/money.ts'
import {
  fixedRateSource,
  httpRateSource,
  parseRate,
  type RateSource,
} from '../../../../core/metering/rates/sources.ts'
import { createRates } from '../../../../core/metering/rates/rates.ts'
import { createWorld, type World } from '../harness.ts'

async function answering(
  listener: RequestListener,
  ask: (url: string) => Promise<unknown>,
): Promise<unknown> {
  const server = await listen(createServer(listener), {
    host: '127.0.0.1',
    port: 0,
    setting: 'TEST',
  })
  try {
    return await ask(`${server.url}/price`)
  } finally {
    await server.stop(0)
  }
}

const read = (body: string, status = 200): Promise<unknown> =>
  answering(
    (_request, response) => void response.writeHead(status).end(body),
    async (url) => formatDecimal18(await httpRateSource(url).read()),
  )

describe('HTTP rate source', () => {
  it.each([
    ['Coinbase', '{"data":{"amount":"3012.34","base":"ETH","currency":"USD"}}', '3012.34'],
    [
      'Kraken',
      '{"error":[],"result":{"XETHZUSD":{"a":["3013.0","1"],"c":["3012.34000","0.05"]}}}',
      '3012.34',
    ],
    ['text', '{"price":"3012.340000000000000001"}', '3012.340000000000000001'],
    ['number', '{"price": 3012.1234567890123456}', '3012.1234567890123456'],
    ['whole', '{"price":3000}', '3000'],
    ['longer than 18 places', '{"price":"3000.1234567890123456789"}', '3000.123456789012345678'],
  ])('reads the %s format, digit by digit', async (_shape, body, rate) => {
    expect(await read(body)).toBe(rate)
  })

  it.each([
    '',
    'garbage',
    '[]',
    'null',
    '{}',
    '{"price":0}',
    '{"price":"0.0"}',
    '{"price":-1}',
    '{"price":"1e3"}',
    '{"price":1e3}',
    '{"price":null}',
    '{"price":"10000000.000001"}',
    '{"data":{"amount":"3012.34","currency":"EUR"}}',
    '{"data":{}}',
    '{"error":["EQuery"]}',
    '{"result":{"A":{"c":["1"]},"B":{"c":["2"]}}}',
    '{"result":{"A":{"c":[]}}}',
    '{"price":"3000","price":"4000"}',
  ])('rejects %s', async (body) => {
    await expect(read(body)).rejects.toThrow('no usable price')
  })

  it('rejects an error, a redirect and more than 64 KiB', async () => {
    await expect(read('{"price":3000}', 500)).rejects.toThrow('answered 500')
    await expect(read(`{"price":3000,"pad":"${'x'.repeat(70_000)}"}`)).rejects.toThrow(
      'more than 65536 bytes',
    )
    await expect(
      answering(
        (_request, response) => void response.writeHead(302, { location: '/other' }).end(),
        (url) => httpRateSource(url).read(),
      ),
    ).rejects.toThrow('fetch failed')
  })

  it('gives up after 3 seconds, even in the middle of a response', async () => {
    const started = Date.now()
    await expect(
      answering(
        (_request, response) => void response.write('{"price":'),
        (url) => httpRateSource(url).read(),
      ),
    ).rejects.toThrow('timeout')
    expect(Date.now() - started).toBeGreaterThan(2_500)
    expect(Date.now() - started).toBeLessThan(5_000)
  })
})

describe('observing the rate', () => {
  let world: World
  beforeAll(async () => {
    world = await createWorld()
  })
  afterAll(() => world.stop())

  const script = (name: string, answers: (string | null)[]): RateSource => ({
    name,
    read: async () => {
      const rate = parseRate(answers.shift() ?? '')
      if (rate === null) throw new Error('down')
      return rate
    },
  })

  function observing(...sources: RateSource[]) {
    const rejected: string[] = []
    const logged: string[] = []
    const log = createLog({ level: 'info', name: 'core' }, { write: (line) => logged.push(line) })
    const rates = createRates({
      pool: world.pool,
      now: () => world.clock.at,
      log,
      sources,
      ages: { maxAgeSeconds: 600, manualMaxAgeSeconds: 86_400 },
      maxTicketDays: 365,
      onRejected: (why) => rejected.push(why),
    })
    const observe = async () => {
      world.clock.at = new Date(world.clock.at.getTime() + 1000)
      const rate = await rates.observe()
      return rate && `${formatDecimal18(rate.usdAttosPerEth)} ${rate.source}`
    }
    return { rejected, logged, observe, rates }
  }

  it('logs a missing rate hourly, not at each attempt', async () => {
    const { observe, logged } = observing(script('a', []))
    const wait = async (seconds: number) => {
      world.clock.at = new Date(world.clock.at.getTime() + seconds * 1000)
      await observe()
      return logged.splice(0).map((line) => JSON.parse(line).msg.replace(/[:;].*/, ''))
    }
    const both = ['this source returned no rate', 'no ETH rate is usable']
    expect(await wait(0)).toEqual(both)
    expect(await wait(30)).toEqual([])
    expect(await wait(3_500)).toEqual([])
    expect(await wait(100)).toEqual(both)
  })

  it('keeps a manual rate usable for a day, until a newer one is observed', async () => {
    const { rates, observe } = observing(script('a', ['3000']))
    await rates.record({ usdPerEth: '2900', source: 'desk' })
    const recordedMs = world.clock.at.getTime()
    const usableAfter = async (seconds: number) => {
      world.clock.at = new Date(recordedMs + seconds * 1000)
      return (await rates.usable())?.source ?? null
    }
    expect(await usableAfter(86_400)).toBe('manual:desk')
    expect(await usableAfter(86_401)).toBeNull()
    expect(await usableAfter(3_600)).toBe('manual:desk')
    expect(await observe()).toBe('3000 a')
    expect(await usableAfter(3_601 + 600)).toBe('a')
    expect(await usableAfter(3_602 + 600)).toBeNull()
    world.clock.at = new Date(recordedMs + 2 * 86_400_000)
  })

  it('uses the first source that answers', async () => {
    const { observe, rejected, rates } = observing(
      script('a', [null, '3000']),
      script('b', ['3001', '3002']),
    )
    expect(await rates.usable()).toBeNull()
    expect(await observe()).toBe('3001 b')
    expect(await observe()).toBe('3000 a')
    expect(rejected).toEqual(['unusable'])
    expect(await rates.usable()).toMatchObject({ source: 'a', observedAt: world.clock.at })
  })

  it('ignores a jump of more than half until it is observed a second time', async () => {
    const { observe, rejected } = observing(script('a', ['30', '3100', '1400', '1450', '1460']))
    expect([
      await observe(),
      await observe(),
      await observe(),
      await observe(),
      await observe(),
    ]).toEqual([null, '3100 a', null, '1450 a', '1460 a'])
    expect(rejected).toEqual(['jump', 'jump'])
  })

  it('accepts a jump that the next source confirms at once', async () => {
    const { observe } = observing(script('a', ['9000']), script('b', ['9100']))
    expect(await observe()).toBe('9100 b')
  })

  it('never rewrites or deletes an observation', async () => {
    const { observe } = observing(fixedRateSource(ethRate(90005n * 10n ** 17n)))
    expect(await observe()).toBe('9000.5 fixed')
    await expect(world.pool.query('update rates set source = $1', ['x'])).rejects.toThrow(
      'append-only',
    )
    await expect(world.pool.query('delete from rates')).rejects.toThrow('append-only')
  })

  it("accepts an operator's observation without a jump check, and rejects a malformed one", async () => {
    const { rates } = observing()
    expect(await rates.record({ usdPerEth: '1.5', source: ' desk ' })).toMatchObject({
      source: 'manual:desk',
    })
    for (const wrong of ['0', '-1', '', 'x', '1e3', '99999999']) {
      await expect(rates.record({ usdPerEth: wrong, source: 'desk' })).rejects.toMatchObject({
        reason: 'REQUEST_INVALID',
      })
    }
    await expect(rates.record({ usdPerEth: '1', source: ' ' })).rejects.toMatchObject({
      reason: 'REQUEST_INVALID',
    })
    await expect(rates.record({ usdPerEth: '1', source: 'x'.repeat(101) })).rejects.toMatchObject({
      reason: 'REQUEST_INVALID',
    })
  })

  it('accepts an observation up to 400 days old, but not from the future', async () => {
    const { rates } = observing()
    const at = world.clock.at.getTime()
    const record = (observedAt: string) =>
      rates.record({ usdPerEth: '2', source: 'desk', observedAt })
    for (const ms of [at, at - 1, at - 400 * 86_400_000]) {
      expect(await record(new Date(ms).toISOString())).toMatchObject({
        observedAt: new Date(ms),
        source: 'manual:desk',
      })
    }
    expect(await record('2026-09-14T12:00:00+02:00')).toMatchObject({
      observedAt: new Date('2026-09-14T10:00:00Z'),
    })
    const far = new Date(at - 400 * 86_400_000 - 1).toISOString()
    for (const wrong of [
      new Date(at + 1).toISOString(),
      far,
      '',
      'yesterday',
      '2026-09-14',
      '2026-02-30T00:00:00Z',
    ]) {
      await expect(record(wrong)).rejects.toMatchObject({
        reason: 'REQUEST_INVALID',
        message: expect.stringContaining('observedAt'),
      })
    }
  })
})
