import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { beforeAll, describe, expect, it, vi } from 'vitest'
import { type TestApp, type TestCore } from '../../core/support.ts'
import { operate, startCli } from './support.ts'

let core: TestCore
let app: TestApp
let folder: string
beforeAll(async () => {
  const cli = await startCli()
  ;({ core, app } = cli)
  folder = await mkdtemp(join(tmpdir(), 'tollgate-plan-'))
  vi.stubEnv('TOLLGATE_DATA_DIR', folder)
  return async () => {
    await cli.stop()
    await rm(folder, { recursive: true, force: true })
  }
})

describe('tollgate plan', () => {
  it('creates, lists, shows, changes and deletes plans', async () => {
    const ofApp = ['--app', app.clientId]
    const flags =
      '--name Pro --type usage --price-amount 49.00 --markup-percent 20 --charge-threshold-usd 10 ' +
      '--billing-cycle weekly --capability llm=100% --capability live:acme/fast --json'
    const created = await operate('plan', 'create', ...ofApp, ...flags.split(' '))
    expect(created).toMatchObject({ code: 0 })
    const plan = JSON.parse(created.text)
    expect(plan).toMatchObject({
      name: 'Pro',
      type: 'usage',
      priceAmount: '49.00',
      overageRateUsd: '0.0000012',
      chargeThresholdUsdMicros: '10000000',
      billingCycle: 'weekly',
      version: 1,
      capabilities: [
        { pipeline: 'llm', modelId: '*', effectiveRetailRateUsd: '0.000002' },
        { pipeline: 'live', modelId: 'acme/fast', effectiveRetailRateUsd: '0.0000012' },
      ],
    })
    const list = await operate('plan', 'list', ...ofApp)
    expect(list.text).toMatch(
      /markup +version\n.*Starter .* active +0\.00 USD +1\n.*Network Price .*\n.*Pro +usage +active +49\.00 USD +\+20 % +1/,
    )
    const file = join(folder, 'change.json')
    await writeFile(file, JSON.stringify({ includedUsdMicros: '5', status: 'active' }))
    const change = `--overage-rate-usd none --file ${file} --status inactive`
    const changed = await operate('plan', 'update', plan.id, ...ofApp, ...change.split(' '))
    expect(changed.code).toBe(0)
    const shown = await operate('plan', 'show', plan.id, ...ofApp)
    expect(shown.text).toBe(changed.text)
    expect(shown.text).toMatch(/status +inactive\n/)
    expect(shown.text).toMatch(/included +0\.000005 USD\n/)
    expect(shown.text).toMatch(
      /version +2\n +llm +0\.000002 USD for a USD-micro \(\+100 %\)\n +live:acme\/fast +0\.000001 .*\(\+0 %\)\n$/,
    )
    expect(await operate('plan', 'delete', plan.id, ...ofApp)).toMatchObject({ code: 0 })
    expect((await operate('plan', 'show', plan.id, ...ofApp)).code).toBe(1)
    const { rows } = await core.sql.query(
      `select details ->> 'rpc' as rpc, status from audit_log where action = 'operator_command' and details ->> 'rpc' like '%Plan'`,
    )
    expect(rows.map(({ rpc }) => rpc.split('/')[1]).toSorted()).toEqual([
      'CreatePlan',
      'DeletePlan',
      'UpdatePlan',
    ])
  })

  it('changes the included usage of Starter', async () => {
    const ofApp = ['--app', app.clientId]
    const [starter] = JSON.parse((await operate('plan', 'list', ...ofApp, '--json')).text)
    const change = (...more: string[]) => operate('plan', 'update', starter.id, ...ofApp, ...more)
    expect((await change('--included-usd-micros', '7')).text).toMatch(/included +0\.000007 USD\n/)
    expect((await change('--name', 'Other')).code).toBe(1)
  })

  it("passes on core's refusals, and rejects wrong usage", async () => {
    const ofApp = ['--app', app.clientId]
    const reserved = await operate('plan', 'create', ...ofApp, '--name', 'starter')
    expect(reserved).toEqual({ code: 1, text: expect.stringContaining('is reserved') })
    const create = (...more: string[]) =>
      operate('plan', 'create', ...ofApp, '--name', 'X', ...more)
    expect((await create('--price-amount', 'x')).text).toContain('--price-amount must')
    expect((await create('--markup-percent', '-101')).code).toBe(2)
    expect((await create('--markup-percent', '1', '--overage-rate-usd', '1')).code).toBe(2)
    const nobody = ['--app', 'app_ffffffffffffffffffffffff']
    expect((await operate('plan', 'list', ...nobody)).text).toContain('no app has this client id')
    for (const argv of [['list'], ['show', ...ofApp], ['delete', 'a', 'b', ...ofApp], ['make']])
      expect((await operate('plan', ...argv)).code).toBe(2)
  })
})

describe('tollgate catalog', () => {
  it('adds, lists, refreshes and removes', async () => {
    const before = await operate('catalog', 'list')
    expect(before.text).toMatch(/^pipeline +source +added\nlive-video-to-video +setting\n/)
    expect(await operate('catalog', 'add', 'own:acme/m:1')).toMatchObject({ code: 0 })
    expect((await operate('catalog', 'list')).text).toMatch(/own:acme\/m:1 +operator +2026/)
    const { offers } = JSON.parse((await operate('catalog', 'list', '--json')).text)
    expect(offers.at(-1)).toMatchObject({ pipeline: 'own', modelId: 'acme/m:1' })
    expect((await operate('catalog', 'refresh')).text).toBe(
      'CATALOG_URL is not set; read the tickets\n',
    )
    expect(await operate('catalog', 'remove', 'own:acme/m:1')).toMatchObject({ code: 0 })
    expect((await operate('catalog', 'list')).text).toBe(before.text)
    expect((await operate('catalog', 'remove', 'own')).code).toBe(1)
    expect((await operate('catalog', 'add')).code).toBe(2)
  })
})

describe('tollgate plan sync', () => {
  it('syncs a plan, and reports why it cannot', async () => {
    const ofApp = ['--app', app.clientId]
    const { text: plans } = await operate('plan', 'list', ...ofApp)
    const idOf = (name: string) => new RegExp(`(\\S+) +${name}`).exec(plans)?.[1] ?? ''
    const free = await operate('plan', 'sync', idOf('Network Price'), ...ofApp)
    expect(free.text).toContain('is synced: not needed, because it is free')
    const starter = await operate('plan', 'sync', idOf('Starter'), ...ofApp)
    expect(starter.text).toContain('no metering backend with plans is configured')
  })
})
