import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { startStripe } from '../../../fakes/stripe/stripe.ts'
import { until } from '../../../core/support.ts'
import { type Person, logIn } from '../../../support/web/people.ts'
import { type Console, startConsole } from '../../console.ts'

let console: Console
let admin: Person
beforeAll(async () => {
  console = await startConsole()
  admin = await logIn(console, { isPlatformAdmin: true })
})
afterAll(() => console?.stop())

const url = '/api/v1/internal/operate/checks'

interface Check {
  readonly name: string
  readonly configured: boolean
  readonly last?: {
    readonly state: string
    readonly failure?: string
    readonly findingCount: number
    readonly findings: object[]
  }
}

async function list(at = console, person = admin): Promise<Map<string, Check>> {
  const answer = await at.send('GET', url, { person })
  expect(answer.status).toBe(200)
  const { checks }: { checks: Check[] } = JSON.parse(await answer.text())
  return new Map(checks.map((check) => [check.name, check]))
}

async function start(name: string) {
  const answer = await console.send('POST', `${url}/${name}/start`, { person: admin, json: {} })
  return { status: answer.status, ...JSON.parse(await answer.text()) }
}

const booksRun = async () => (await list()).get('books')?.last

describe('a check, for platform admins', () => {
  it('has not run at first, and is not offered with nothing to compare with', async () => {
    const checks = await list()
    expect([...checks.keys()]).toEqual(['books', 'metering', 'processor'])
    expect(checks.get('books')).toEqual({ name: 'books', configured: true })
    expect(checks.get('metering')).toEqual({ name: 'metering', configured: false })
    expect(await start('metering')).toMatchObject({ status: 503, code: 'metering_not_configured' })
    expect(await start('processor')).toMatchObject({
      status: 503,
      code: 'processor_not_configured',
    })
    expect(await start('everything')).toMatchObject({ status: 404 })
  })

  it('verifies the books in the background, and keeps the result', async () => {
    await console.newApp()
    expect((await start('books')).status).toBe(202)
    await until(async () => (await booksRun())?.state === 'ended')
    expect(await booksRun()).toMatchObject({
      startedBy: admin.email,
      summary: expect.stringMatching(/ apps? and \d+ users? checked\.$/),
      findingCount: 0,
      findings: [],
    })
  })

  it('reports a difference as a sentence', async () => {
    const app = await console.newApp()
    const rpcs = console.as(app.basic)
    const { clientId } = app
    await rpcs.upsertUser({ clientId, externalUserId: 'ada' })
    await console.sql.query(
      `update balances set granted_attos = granted_attos + 7, balance_attos = balance_attos + 7
       from clients c where c.client_id = $1 and c.app_id = balances.app_id`,
      [clientId],
    )
    expect((await start('books')).status).toBe(202)
    await until(async () => (await booksRun())?.state === 'ended')
    expect((await booksRun())?.findings).toContainEqual({
      clientId,
      text: expect.stringMatching(/^balances of ada: granted_attos is .* a difference of \+7/),
    })
  })

  it('runs once at a time, and is interrupted when its core has ended', async () => {
    await console.sql.query(
      `update checks set ended_at = null, outcome = null, seen_at = $1 where name = 'books'`,
      [console.clock.now()],
    )
    expect((await booksRun())?.state).toBe('running')
    expect(await start('books')).toMatchObject({ status: 409, code: 'conflict' })
    console.clock.advance(61_000)
    expect((await booksRun())?.state).toBe('interrupted')
    expect((await start('books')).status).toBe(202)
    await until(async () => (await booksRun())?.state === 'ended')
  })
})

describe('the check of the payment processor', () => {
  it('shows open differences at each run, and fails if an account was not compared', async () => {
    const stripe = await startStripe({ now: () => paid.clock.now() })
    const paid = await startConsole({ env: stripe.env })
    try {
      const person = await logIn(paid, { isPlatformAdmin: true })
      const run = async () => {
        const started = await paid.send('POST', `${url}/processor/start`, { person, json: {} })
        expect(started.status).toBe(202)
        const last = async () => (await list(paid, person)).get('processor')?.last
        await until(async () => (await last())?.state === 'ended')
        return last()
      }
      expect(await run()).toMatchObject({ findingCount: 0 })
      await paid.sql.query(
        `insert into processor_differences (id, processor, plane, account_id, subject, problem, processor_payment_id, theirs, currency, found_at)
         select gen_random_uuid(), 'stripe', 'live', 'acct_1', 'payment', 'missing_here', 'pi_' || n, 1234, 'usd', $1
         from generate_series(1, 201) n`,
        [paid.clock.now()],
      )
      const text = expect.stringMatching(
        /^The live account acct_1: payment pi_\d+ differs \(missing_here\): nothing here, 1234 /,
      )
      const found = await run()
      expect(found).toMatchObject({ findingCount: 201 })
      expect(found?.failure).toBeUndefined()
      expect(found?.findings[0]).toMatchObject({ text })
      expect(await run()).toMatchObject({ findingCount: 201 })
      paid.clock.advance(7_200_000)
      stripe.faults = () => ({ kind: 'refuse', status: 429 })
      expect(await run()).toMatchObject({
        findingCount: 201,
        failure: expect.stringMatching(
          /^the live account of the platform was not compared: .*; 0 accounts compared$/,
        ),
      })
    } finally {
      await paid.stop()
      await stripe.stop()
    }
  }, 60_000)
})
