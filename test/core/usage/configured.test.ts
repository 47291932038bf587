import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type TestApp, type TestCore, outcome, startTestCore } from '../support.ts'

let core: TestCore
let app: TestApp
let other: TestApp
beforeAll(async () => {
  core = await startTestCore({ METERING_BACKEND: 'none' })
  app = await core.newApp()
  other = await core.newApp()
})
afterAll(() => core.stop())

describe('without metering', () => {
  it('rejects usage, balances and allowances, after checking the caller and before the parameters', async () => {
    const { clientId } = app
    const mine = core.as(app.basic)
    await mine.upsertUser({ clientId, externalUserId: 'ada' })
    expect(await outcome(mine.queryUsage({ clientId, groupBy: 'nonsense' }))).toBe(
      'METERING_NOT_CONFIGURED',
    )
    expect(await outcome(mine.getBalance({ clientId, externalUserId: 'nobody' }))).toBe(
      'METERING_NOT_CONFIGURED',
    )
    expect(await outcome(mine.checkCaller({ clientId, kind: 'm2m_basic', metered: true }))).toBe(
      'METERING_NOT_CONFIGURED',
    )
    expect(await outcome(mine.checkCaller({ clientId, kind: 'm2m_basic' }))).toBe('OK')
    for (const credential of [undefined, other.basic]) {
      expect(await outcome(core.as(credential).queryUsage({ clientId }))).toBe('NOT_FOUND')
      expect(
        await outcome(
          core.as(credential).checkCaller({ clientId, kind: 'm2m_basic', metered: true }),
        ),
      ).toBe('NOT_FOUND')
    }
    const { accessToken } = await core.as(app.basic).issueMachineToken()
    expect(await outcome(core.as(`Bearer ${accessToken}`).queryOwnUsage({}))).toBe('TOKEN_INVALID')
    expect(await outcome(mine.getAllowance({ clientId, externalUserId: 'ada' }))).toBe(
      'METERING_NOT_CONFIGURED',
    )
  })
})
