import { describe, expect, it } from 'vitest'
import { app, core, operate, setUpCli } from './support.ts'

setUpCli()

const tenant = (...argv: string[]) => operate('tenant', ...argv)

describe('tollgate tenant', () => {
  it('creates, lists, rotates, disables and enables a tenant', async () => {
    const { clientId } = app
    expect((await tenant('list')).text).toContain('No tenants yet')
    expect((await tenant('create', clientId)).text).toMatch(
      /An app +active +1 [\s\S]*secret \(shown once\): svc_ts_[0-9A-Za-z]{49}\n/,
    )
    expect((await tenant('create', clientId)).text).toContain('already a tenant')
    expect((await tenant('rotate', clientId, '--overlap-seconds', '60')).text).toMatch(
      /secret \(shown once\): svc_ts_\S+\nthe old secrets end at 2026-03-10T12:01:00\.250Z; 0 keys/,
    )
    expect((await tenant('list')).text).toMatch(new RegExp(`${clientId} +An app +active +2`))
    expect((await tenant('disable', clientId)).text).toMatch(/disabled/)
    expect((await tenant('enable', clientId, '--json')).text).toContain('"status": "active"')
  })

  it.each([
    [['create'], 2, 'needs one APP'],
    [['make', 'x'], 2, 'tenant takes create, list, rotate, disable, enable'],
    [['rotate', 'x', '--overlap-seconds', '-1'], 2, 'overlap'],
    [['rotate', 'x', '--overlap-seconds', 'y'], 2, 'whole number'],
    [['create', 'app_0123456789abcdef01234567'], 1, 'no app has this client id'],
    [['list', '--limit', '0'], 2, '--limit must be'],
  ])('refuses %j', async (argv, code, message) => {
    const answer = await tenant(...argv)
    expect(answer.text).toContain(message)
    expect(answer.code).toBe(code)
  })

  it('refuses to rotate an app that is not a tenant', async () => {
    const { clientId } = await core.newApp()
    const { code, text } = await tenant('rotate', clientId)
    expect([code, text]).toEqual([1, expect.stringContaining('the app is not a tenant')])
  })
})
