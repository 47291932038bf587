import { beforeAll, describe, expect, it } from 'vitest'
import { app, core, operate, setUpCli } from './support.ts'

let keyId: string
setUpCli()
beforeAll(async () => {
  const ada = { clientId: app.clientId, externalUserId: 'ada' }
  await core.as(app.basic).upsertUser(ada)
  keyId = (await core.as(app.basic).createKey(ada)).keyId
})

const limits = (...argv: string[]) => operate('limits', ...argv)
const ada = () => ['--app', app.clientId, '--user', 'ada']

describe('tollgate limits', () => {
  it("shows, sets and removes a user's limits", async () => {
    expect(await limits('show', ...ada())).toEqual({ code: 0, text: 'ada\n  no limits\n' })
    const text = [
      'ada',
      '  money per day            at most 2.00 USD',
      '  money per session        at most 0.50 USD',
      '  calls per minute         at most 60',
      '  concurrent sessions      at most 3',
      '  wei, live                at most 1300',
      '  wei, fixed, acme/a:b=c   at most 25',
      '',
    ].join('\n')
    const flags =
      '--usd-micros-per-day 2000000 --usd-micros-per-session 500000 --calls-per-minute 60 ' +
      '--concurrent-sessions 3 --max-price live=1300 --max-price fixed:acme/a:b=c=25 --author Grace'
    const set = await limits('set', ...ada(), ...flags.split(' '))
    expect(set).toEqual({ code: 0, text })
    expect(await limits('show', ...ada())).toEqual({ code: 0, text })
    expect(await limits('clear', ...ada())).toEqual({ code: 0, text: 'ada has no limits now\n' })
    expect((await limits('show', ...ada())).text).toContain('no limits')
    const { rows } = await core.sql.query(
      "select action from audit_log where actor = 'operator:Grace' order by action",
    )
    expect(rows).toEqual([{ action: 'limits_set' }])
  })

  it("separates a key's limits from its user's", async () => {
    const key = [...ada(), '--key', keyId]
    await limits('set', ...key, '--calls-per-minute', '5')
    expect(JSON.parse((await limits('show', ...key, '--json')).text)).toEqual({
      callsPerMinute: 5,
      maxPrices: [],
    })
    expect((await limits('show', ...ada())).text).toContain('no limits')
    expect((await limits('clear', ...key)).text).toBe(`key ${keyId} has no limits now\n`)
  })

  it.each([
    ['without an action', 2, []],
    ['with an unknown action', 2, ['raise']],
    ['without a user', 2, ['show', '--app', 'app_1']],
    ['with an unknown option', 2, ['show', '--users', 'ada']],
    ['with an invalid count', 2, ['set', '--calls-per-minute', '1.5']],
    ['with a price without a type', 2, ['set', '--max-price', '1300']],
    ['without a limit', 1, ['set']],
    ['with an amount of zero', 1, ['set', '--usd-micros-per-day', '0']],
    ['with an unknown key', 1, ['show', '--key', 'k']],
    ['with a blank author', 1, ['set', '--calls-per-minute', '1', '--author', ' ']],
  ])('refuses to run %s', async (_, code, argv) => {
    const needsUser = argv.length > 0 && !argv.includes('--app')
    const answer = await limits(...argv, ...(needsUser ? ada() : []))
    expect([answer.code, answer.text]).toEqual([code, expect.stringMatching(/^tollgate: /)])
  })

  it('reports an unknown app or user', async () => {
    for (const [clientId, user] of [
      ['app_000000000000000000000000', 'ada'],
      [app.clientId, 'nobody'],
    ] as const)
      expect((await limits('show', '--app', clientId, '--user', user)).code).toBe(1)
  })
})
