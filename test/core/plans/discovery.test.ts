import { type Server, createServer } from 'node:http'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { connectCore } from '../../../deploy/cli/client.ts'
import { type Managing, logInTo, manage } from '../../support/web/people.ts'
import { type TestApp, type TestCore, outcome, serviceToken, startTestCore } from '../support.ts'

/** Fake catalogue server; `answer` is its response. */
let server: Server
let url: string
let answer: { status: number; text: string; location?: string }
let requests = 0
beforeAll(async () => {
  server = createServer((_, response) => {
    requests += 1
    const { status, text, location } = answer
    response.writeHead(status, location === undefined ? {} : { location }).end(text)
  })
  const { promise, resolve } = Promise.withResolvers<void>()
  server.listen(0, '127.0.0.1', resolve)
  await promise
  const address = server.address()
  url = `http://127.0.0.1:${typeof address === 'object' && address ? address.port : 0}/catalogue`
})
afterAll(() => server.close())

let core: TestCore
let app: TestApp
let owner: Managing
let operator: ReturnType<typeof connectCore>
async function start(env: Readonly<Record<string, string>>): Promise<void> {
  requests = 0
  core = await startTestCore(env)
  app = await core.newApp()
  owner = manage(core, { session: (await logInTo(core, app, 'owner')).token })
  operator = connectCore({ target: core.core.target, token: serviceToken })
}
beforeEach(() => {
  answer = { status: 200, text: JSON.stringify([{ pipeline: 'live', modelId: 'fast' }]) }
})
afterEach(async () => {
  operator.close()
  await core.stop()
})

const read = () => operator.discovery.refreshOffers({})
const naming = (...capabilities: object[]) =>
  outcome(
    owner.createPlan({
      clientId: app.clientId,
      planJson: JSON.stringify({ name: `Pro ${(plans += 1)}`, capabilities }),
    }),
  )
let plans = 0
const grant = (featureKey: string) =>
  outcome(
    core.as(app.basic).createGrant({
      clientId: app.clientId,
      externalUserId: 'ada',
      amountUsdMicros: '5',
      featureKey,
    }),
  )
const fast = { pipeline: 'live', modelId: 'fast' }
const countPlans = async () =>
  Number((await core.sql.query('select count(*) from plans')).rows[0].count)

describe('catalogue at CATALOG_URL', () => {
  it('decides which features plans and credit may name', async () => {
    await start({ CATALOG_URL: url })
    await expect.poll(() => requests).toBeGreaterThan(0)
    expect((await read()).read).toEqual({
      url,
      readAt: core.clock.now().toISOString(),
      triedAt: core.clock.now().toISOString(),
      error: undefined,
    })
    await core.as(app.basic).upsertUser({ clientId: app.clientId, externalUserId: 'ada' })
    expect(await naming(fast)).toBe('OK')
    expect(await naming({ ...fast, modelId: '*' })).toBe('OK')
    expect(await naming({ ...fast, modelId: 'slow' })).toBe('REQUEST_INVALID')
    // PIPELINES has no default when CATALOG_URL is set.
    expect(await naming({ pipeline: 'llm', modelId: '*' })).toBe('REQUEST_INVALID')
    expect(await grant('live:fast')).toBe('OK')
    expect(await grant('live:slow')).toBe('FEATURE_UNKNOWN')
    expect(await grant('llm')).toBe('FEATURE_UNKNOWN')
  })

  it('returns UNAVAILABLE until its first read, and creates nothing', async () => {
    answer = { status: 500, text: '' }
    await start({ CATALOG_URL: url })
    expect((await read()).read).toMatchObject({ readAt: undefined, error: 'answered 500' })
    await core.as(app.basic).upsertUser({ clientId: app.clientId, externalUserId: 'ada' })
    const before = await countPlans()
    expect(await naming(fast)).toBe('UNAVAILABLE')
    expect(await grant('live')).toBe('UNAVAILABLE')
    expect(await countPlans()).toBe(before)
    // Requests that need no catalogue still work.
    expect(await naming()).toBe('OK')
    expect(await grant('network_spend')).toBe('OK')
    // Operators can add offers in the meantime.
    await operator.discovery.createOffer({ pipeline: 'live', modelId: '*' })
    expect(await naming(fast)).toBe('OK')
    await operator.discovery.deleteOffer({ pipeline: 'live', modelId: '*' })
    expect(await naming(fast)).toBe('UNAVAILABLE')
    answer = { status: 200, text: JSON.stringify(['live']) }
    await read()
    expect(await naming(fast)).toBe('OK')
  })

  it.each([
    ['is unavailable', { status: 502, text: '' }, 'answered 502'],
    ['does not return JSON', { status: 200, text: '<html>' }, /JSON/],
    ['returns an empty list', { status: 200, text: '[]' }, 'answered no pipeline'],
    ['returns another document', { status: 200, text: '{"a":1}' }, 'answered no list of pipelines'],
    [
      'returns too much',
      { status: 200, text: JSON.stringify(['x'.repeat(1_100_000)]) },
      /more than 1048576 bytes/,
    ],
    ['redirects', { status: 302, text: '', location: 'http://169.254.169.254/' }, /redirect/],
  ])('keeps its entries when the address %s', async (_, broken, reason) => {
    await start({ CATALOG_URL: url })
    const { read: first } = await read()
    core.clock.advance(1_000)
    answer = broken
    const { read: second } = await read()
    expect(second).toMatchObject({ readAt: first?.readAt, triedAt: core.clock.now().toISOString() })
    expect(second?.error).toMatch(reason)
    expect(await naming(fast)).toBe('OK')
    expect(await naming({ ...fast, modelId: 'slow' })).toBe('REQUEST_INVALID')
  })

  it('removes entries that the address no longer returns', async () => {
    await start({ CATALOG_URL: url })
    await read()
    answer = { status: 200, text: JSON.stringify(['llm']) }
    await read()
    expect(await naming(fast)).toBe('REQUEST_INVALID')
    expect((await operator.discovery.listOffers({ limit: 10 })).offers).toMatchObject([
      { pipeline: 'llm', modelId: '*', source: 'url' },
    ])
  })
})

describe('catalogue from settings', () => {
  it("includes the pipelines and models of the same app's tickets only", async () => {
    await start({ PIPELINES: 'llm,live:fast' })
    const other = await core.newApp()
    await core.as(app.basic).upsertUser({ clientId: app.clientId, externalUserId: 'ada' })
    expect(await naming({ pipeline: 'own', modelId: 'm' })).toBe('REQUEST_INVALID')
    await core.sql.query(
      `insert into usage_hourly (app_id, user_id, hour, pipeline, model_id, ticket_count, unpriced_count, fee_wei, cost_attos,
                                 billable_secs, pixels)
      select c.app_id, u.id, $2, 'own', 'm', 1, 0, 1, 1, 0, 0
      from clients c join end_users u on u.app_id = c.app_id where c.client_id = $1`,
      [app.clientId, core.clock.now()],
    )
    expect(await naming({ pipeline: 'own', modelId: 'm' })).toBe('OK')
    expect(await naming({ pipeline: 'own', modelId: 'n' })).toBe('REQUEST_INVALID')
    expect(await grant('own:m')).toBe('OK')
    const stranger = manage(core, { session: (await logInTo(core, other, 'owner')).token })
    const planJson = JSON.stringify({
      name: 'Pro',
      capabilities: [{ pipeline: 'own', modelId: 'm' }],
    })
    expect(await outcome(stranger.createPlan({ clientId: other.clientId, planJson }))).toBe(
      'REQUEST_INVALID',
    )
    expect(
      (await operator.discovery.listOffers({ clientId: app.clientId, limit: 10 })).offers,
    ).toMatchObject([
      { pipeline: 'llm', modelId: '*', source: 'setting' },
      { pipeline: 'live', modelId: 'fast', source: 'setting' },
      { pipeline: 'own', modelId: 'm', source: 'ticket' },
    ])
    expect((await operator.discovery.refreshOffers({})).read).toBeUndefined()
  })

  it('lists entries in pages, and rejects offers that no plan can name', async () => {
    await start({})
    for (const modelId of ['a', 'b', 'c'])
      await operator.discovery.createOffer({ pipeline: 'zz', modelId })
    await operator.discovery.createOffer({ pipeline: 'zz', modelId: 'a' })
    const page = await operator.discovery.listOffers({
      limit: 2,
      afterPipeline: 'zz',
      afterModelId: 'a',
    })
    expect(page.offers.map(({ modelId }) => modelId)).toEqual(['b', 'c'])
    expect(await outcome(operator.discovery.listOffers({ limit: 0 }))).toBe('REQUEST_INVALID')
    for (const pipeline of ['', '*', 'a:b', ' a', 'a\u0000'])
      expect(await outcome(operator.discovery.createOffer({ pipeline, modelId: '*' }))).toBe(
        'REQUEST_INVALID',
      )
    expect(await outcome(operator.discovery.deleteOffer({ pipeline: 'zz', modelId: 'x' }))).toBe(
      'NOT_FOUND',
    )
  })
})
