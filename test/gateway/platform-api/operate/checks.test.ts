import { afterAll, beforeAll, describe, expect, it } from 'vitest'
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
  readonly last?: { readonly state: string; readonly findings: object[] }
}

async function list(): Promise<Map<string, Check>> {
  const answer = await console.send('GET', url, { person: admin })
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
