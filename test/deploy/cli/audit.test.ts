import { hostname, userInfo } from 'node:os'
import { describe, expect, it } from 'vitest'
import { connectCore } from '../../../deploy/cli/client.ts'
import { begin, serviceToken } from '../../core/support.ts'
import { registerSecret } from '../../support/run/secrecy.ts'
import { core, operate, setUpCli } from './support.ts'

setUpCli()

async function entries(...argv: string[]): Promise<Record<string, unknown>[]> {
  const { text } = await operate('audit', ...argv)
  return text
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line))
}

async function exportAudit(request: { limit: number; settled: boolean }) {
  const client = connectCore({ target: core.core.target, token: serviceToken })
  return client.audit.exportAudit(request).finally(() => client.close())
}

const me = `operator:${userInfo().username}@${hostname()}`

describe('tollgate audit', () => {
  it('shows who ran a command, its RPC and its outcome', async () => {
    await operate('rate', 'set', '2500')
    await operate('account', 'create', '--email', 'nobody')
    expect((await entries()).filter(({ action }) => action === 'operator_command')).toEqual(
      expect.arrayContaining([
        {
          clientId: null,
          id: expect.any(String),
          actor: me,
          action: 'operator_command',
          status: expect.any(String),
          correlationId: expect.any(String),
          details: expect.objectContaining({
            rpc: 'tollgate.identity.v1.AccountService/CreateAccount',
            refusal: 'request_invalid',
          }),
          createdAt: begin.toISOString(),
          cursor: expect.any(String),
        },
      ]),
    )
  })

  it("shows the actions of an app's own clients and operators, without secrets", async () => {
    const app = await core.newApp()
    const other = await core.newApp()
    const user = { clientId: app.clientId, externalUserId: 'ada' }
    await core.as(app.basic).upsertUser(user)
    const { apiKey } = await core.as(app.basic).createKey(user)
    registerSecret(apiKey)
    await core.as(other.basic).upsertUser({ ...user, clientId: other.clientId })
    const flags = ['--app', app.clientId, '--user', 'ada', '--calls-per-minute', '5']
    await operate('limits', 'set', ...flags)
    const lines = await entries('--app', app.clientId)
    expect(new Set(lines.map(({ clientId }) => clientId))).toEqual(new Set([app.clientId]))
    expect(lines.map(({ action }) => action).toSorted()).toEqual([
      'api_key_created',
      'app_created',
      'app_user_upserted',
      'limits_set',
      'operator_command',
    ])
    expect(JSON.stringify(lines)).not.toContain(apiKey)
    expect(JSON.stringify(await entries())).not.toMatch(/svc_[a-z]{2}_/)
  })

  it('continues after the cursor of a line, and limits the time span', async () => {
    const all = await entries()
    const after = await entries('--after', String(all[1]?.['cursor']))
    expect(after).toEqual(all.slice(2))
    const later = new Date(begin.getTime() + 1).toISOString()
    expect(await entries('--since', later)).toEqual([])
    expect(await entries('--until', begin.toISOString())).toEqual([])
  })

  it('omits entries from --follow until no earlier one can be committed', async () => {
    const request = { limit: 0, settled: true }
    expect((await exportAudit(request)).entries).toEqual([])
    core.clock.advance(16_000)
    expect((await exportAudit(request)).entries.length).toBeGreaterThan(3)
  })

  it('rejects wrong usage', async () => {
    expect((await operate('audit', 'all')).code).toBe(2)
    expect((await operate('audit', '--follow', '--until', '2026-01-01')).code).toBe(2)
    const wrong = await operate('audit', '--since', 'yesterday')
    expect([wrong.code, wrong.text]).toEqual([1, expect.stringContaining('since must be')])
  })
})
