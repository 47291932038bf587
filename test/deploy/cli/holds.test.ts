import { describe, expect, it } from 'vitest'
import { attos, startSidecar } from '../../core/balances/escrow/granting.ts'
import { app, core, setUpCli, tollgate } from './support.ts'

setUpCli()

const holds = (...argv: string[]) => tollgate('holds', ...argv)

describe('tollgate holds', () => {
  it('reports when nothing is held', async () => {
    expect(await holds()).toEqual({ code: 0, text: 'Nothing is held.\n' })
  })

  it('lists leases and pending authorisations of all users, one app or one user, page by page', async () => {
    const sidecar = await startSidecar(core.as(), 'sidecar-1')
    await sidecar.lend(app, 'ada', { boundUsdAttos: attos(0.1) })
    await sidecar.reserve(app, 'ada', { bound: 0.25, sequence: 7 })
    await sidecar.reserve(app, 'bob', { bound: 1 })
    const { code, text } = await holds(app.clientId, 'ada')
    expect(code).toBe(0)
    const [, user, , leases, lease, , calls, pending] = text.split('\n')
    expect(user).toMatch(new RegExp(`^${app.clientId} +ada +5\\.00 +0\\.40 +0\\.25 +1$`))
    expect(leases).toMatch(/^user +lease +sidecar +used, USD +of +ends +state$/)
    expect(lease).toMatch(
      /^ada +[0-9a-f-]{36} +sidecar-1 +0\.00 +0\.40 +2026-03-10T12:00:36\.250Z +runs$/,
    )
    expect(calls).toMatch(/^user +session +call +type +sidecar +calls +bound, USD +since +state$/)
    expect(pending).toMatch(
      /^ada +s1 +7 +live +sidecar-1 +1 +0\.25 +2026-03-10T12:00:00\.250Z +allowed$/,
    )
    expect((await holds(app.clientId)).text).toMatch(/ bob +5\.00 /)
    const page = await holds('--limit', '1')
    const cursor = /more: .* --cursor (\S+)/.exec(page.text)?.[1] ?? ''
    const rest = await holds('--limit', '1', '--cursor', cursor)
    expect(rest.text).not.toContain('more:')
    expect([page.text, rest.text].map((part) => part.match(/^app_/gm)?.length)).toEqual([1, 1])
    const { users } = JSON.parse((await holds('--json')).text)
    expect(users).toHaveLength(2)
  })

  it('refuses an unknown app or user, an invalid limit and a foreign cursor', async () => {
    expect((await holds('app_000000000000000000000000')).code).toBe(1)
    expect((await holds(app.clientId, 'nobody')).code).toBe(1)
    expect((await holds('--limit', '0')).code).toBe(2)
    expect((await holds('a', 'b', 'c')).code).toBe(2)
    expect((await holds('--cursor', 'x')).text).toContain('cursor is not one')
  })
})
