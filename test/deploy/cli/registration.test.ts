import { beforeAll, describe, expect, it } from 'vitest'
import { type TestApp } from '../../core/support.ts'
import { registerSecret } from '../../support/run/secrecy.ts'
import { operate, startCli } from './support.ts'

let app: TestApp
beforeAll(async () => {
  const cli = await startCli()
  app = cli.app
  return cli.stop
})

const token = (...argv: string[]) => operate('registration', 'token', ...argv)

describe('tollgate registration token', () => {
  it('creates, lists and revokes the tokens of an app', async () => {
    const of = ['--app', app.clientId]
    const flags = ['--label', 'agents', '--uses', '20', '--days', '3']
    const { text } = await token('create', ...of, ...flags)
    const [, initial = '', id = ''] =
      /^(svc_it_\S+) +\(shown once\)\n +id +(\S+)\n +expires +2026-03-13T\S+\n$/.exec(text) ?? []
    registerSecret(initial)
    expect(id).toMatch(/^[0-9a-f-]{36}$/)
    const listed = await token('list', ...of)
    expect(listed.text).toMatch(new RegExp(`${id} +0 of 20 +2026-03-13T\\S+ +agents\n`))
    expect(listed.text).not.toContain(initial)
    expect(await token('revoke', ...of, '--id', id)).toEqual({
      code: 0,
      text: `${id} is revoked\n`,
    })
    const after: unknown = JSON.parse((await token('list', ...of, '--json')).text)
    expect(after).toMatchObject({
      tokens: [{ id, revokedAt: expect.stringMatching(/^2026-03-10/) }],
    })
  })

  it('lets one client register within a week by default', async () => {
    const { text } = await token('create', '--app', app.clientId, '--json')
    const answer: unknown = JSON.parse(text)
    expect(answer).toMatchObject({
      token: expect.stringMatching(/^svc_it_/),
      registrationToken: { usesMax: 1, expiresAt: expect.stringMatching(/^2026-03-17/) },
    })
    registerSecret(text.match(/svc_it_\w+/)?.[0] ?? '')
  })

  it.each([
    [[], 2, 'takes token create, token list, token revoke'],
    [['make'], 2, 'takes token create, token list, token revoke'],
    [['create'], 2, '--app'],
    [['create', '--app', 'x', '--uses', '0'], 2, '--uses must be a whole number from 1'],
    [['create', '--app', 'x', '--days', '1.5'], 2, '--days must be a whole number from 1'],
    [['create', '--app', 'app_0123456789abcdef01234567'], 1, 'no app has this client id'],
    [['list', '--app', 'm2m_0123456789abcdef01234567'], 1, 'no app has this client id'],
    [['revoke', '--app', 'x'], 2, '--id'],
  ])('refuses %j', async (argv, code, message) => {
    const answer = await token(...argv)
    expect([answer.code, answer.text]).toEqual([code, expect.stringContaining(message)])
  })

  it('refuses an unknown token and too long a lifetime', async () => {
    const of = ['--app', app.clientId]
    const unknown = await token('revoke', ...of, '--id', '0192f3a0-0000-7000-8000-000000000000')
    expect([unknown.code, unknown.text]).toEqual([
      1,
      expect.stringContaining('no such registration'),
    ])
    const long = await token('create', ...of, '--days', '367')
    expect([long.code, long.text]).toEqual([1, expect.stringContaining('days')])
  })
})
