import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { accountId, newUserProblem, isOwnerSubject } from '../../../core/shared/ids.ts'
import { ownerAccountSubject } from '../../../core/shared/ids.ts'
import { connectCore } from '../../../deploy/cli/client.ts'
import { createDatabase } from '../../support/run/postgres.ts'
import { type TestCore, outcome, serviceToken, startTestCore } from '../support.ts'

let core: TestCore
let operator: ReturnType<typeof connectCore>
beforeAll(async () => {
  core = await startTestCore()
  operator = connectCore({ target: core.core.target, token: serviceToken, tls: undefined })
})
afterAll(async () => {
  operator.close()
  await core.stop()
})

const platformApps = async () =>
  (await operator.apps.listApps({ limit: 100, cursor: undefined })).apps.filter(
    ({ isPlatformApp }) => isPlatformApp,
  )

const current = async (): Promise<string> => (await platformApps())[0]?.clientId ?? ''

describe('the platform app', () => {
  it('is created at the first start, platform-owned and with Starter', async () => {
    const apps = await platformApps()
    expect(apps).toEqual([expect.objectContaining({ name: 'Platform', isTest: false })])
    const clientId = await current()
    const { settings } = await operator.billing.getBillingSettings({ clientId })
    expect(settings?.isPlatformOwned).toBe(true)
    const { plans } = await operator.plans.listPlans({ clientId })
    expect(plans).toContainEqual(
      expect.objectContaining({ isStarterDefault: true, includedUsdMicros: '5000000' }),
    )
  })

  it('stays the same when other cores start at once', async () => {
    const before = await current()
    await Promise.all([core.startAnother(), core.startAnother(), core.startAnother()])
    expect((await platformApps()).map(({ clientId }) => clientId)).toEqual([before])
  })

  it('is created once by cores that start at once on an empty database', async () => {
    const database = await createDatabase()
    const env = { DATABASE_URL: database.url }
    const cores = await Promise.all([startTestCore(env), startTestCore(env), startTestCore(env)])
    const [first] = cores
    const found = await first?.sql.query('select from apps')
    await Promise.all(cores.map(({ stop }) => stop()))
    await database.drop()
    expect(found?.rowCount).toBe(1)
  })

  it('cannot become a customer of the platform', async () => {
    const change = operator.billing.updateBillingSettings({
      clientId: await current(),
      isPlatformOwned: false,
      billingMode: undefined,
      endUserCap: undefined,
      servesEveryApp: undefined,
      platformCutPercent: undefined,
    })
    await expect(change).rejects.toMatchObject({ reason: 'CONFLICT' })
  })
})

describe('PLATFORM_APP_ID', () => {
  it('names another platform-owned app, which stays when the setting is removed', async () => {
    const { clientId } = await core.newApp({ isCustomer: false })
    await core.startAnother({ PLATFORM_APP_ID: clientId })
    expect(await current()).toBe(clientId)
    await core.startAnother()
    expect(await current()).toBe(clientId)
  })

  it('is refused at start for an app that cannot be the platform app', async () => {
    const customer = await core.newApp()
    const test = await core.newApp({ isCustomer: false, isTest: true })
    const start = (clientId: string) => core.startAnother({ PLATFORM_APP_ID: clientId })
    await expect(start(customer.clientId)).rejects.toThrow(
      `PLATFORM_APP_ID: ${customer.clientId} is not platform-owned`,
    )
    await expect(start(test.clientId)).rejects.toThrow(
      `PLATFORM_APP_ID: ${test.clientId} is a test app`,
    )
    await expect(start(`app_${'0'.repeat(24)}`)).rejects.toThrow(
      'PLATFORM_APP_ID: no app has the client id',
    )
    await expect(start('platform')).rejects.toThrow('PLATFORM_APP_ID must be the client id')
  })
})

describe('account:', () => {
  const account = accountId('0195a3c4-5d6e-7f80-9123-456789abcdef')

  it('is refused for users that integrators create, and accepted elsewhere', async () => {
    const app = await core.newApp()
    const name = { clientId: app.clientId, externalUserId: ownerAccountSubject(account) }
    const rpcs = core.as(app.basic)
    expect(await outcome(rpcs.upsertUser(name))).toBe('REQUEST_INVALID')
    expect(await outcome(rpcs.getUser(name))).toBe('NOT_FOUND')
  })

  it('names an account, and no owner of an app', () => {
    expect(ownerAccountSubject(account)).toBe(`account:${account}`)
    expect(isOwnerSubject(ownerAccountSubject(account))).toBe(false)
    expect(newUserProblem(' account:ada')).toContain('must not start with')
    expect(newUserProblem('accountant')).toBeNull()
  })
})
