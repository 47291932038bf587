import { beforeAll, describe, expect, it, vi } from 'vitest'
import { type TestApp, serviceToken } from '../../core/support.ts'
import { operate, startCli } from './support.ts'

let app: TestApp
beforeAll(async () => {
  const cli = await startCli({
    CORE_TOKEN: '',
    CORE_TOKEN_OPERATOR: serviceToken,
    CORE_TOKEN_GATEWAY: 'g'.repeat(32),
  })
  vi.stubEnv('CORE_TOKEN', '')
  vi.stubEnv('CORE_TOKEN_OPERATOR', serviceToken)
  app = cli.app
  return cli.stop
})

/** Runs the command with the operator's own token. */
const signer = (...argv: string[]) => operate('signer', ...argv)

describe('tollgate signer', () => {
  it('creates, lists, binds, rotates and removes a signer', async () => {
    const made = await signer('create', 'acme', '--app', app.clientId, '--events')
    expect(made.text).toMatch(
      /secret \(shown once\): svc_sg_\S+\nsecret for events \(shown once\): svc_sg_/,
    )
    expect((await signer('list')).text).toMatch(new RegExp(`acme +${app.clientId} +yes +2`))
    expect((await signer('apps', 'acme', '--all-apps')).text).toMatch(/acme +all +yes/)
    expect((await signer('rotate', 'acme')).text).toContain('secret (shown once): svc_sg_')
    expect((await signer('list', '--json')).text).toContain('"secrets": 4')
    expect(await signer('remove', 'acme')).toEqual({
      code: 0,
      text: 'acme is no longer a signer\n',
    })
    expect((await signer('remove', 'acme')).text).toContain('there is no signer acme')
  })

  it.each([
    [['create', 'x'], '--app or --all-apps'],
    [['create', 'x', '--app', 'a', '--all-apps'], '--app or --all-apps'],
    [['rotate'], 'needs one NAME'],
    [['rotate', 'x', '--overlap-seconds', 'y'], 'whole number'],
    [['make', 'x'], 'signer takes create, list, rotate, apps, remove'],
  ])('refuses %j', async (argv, message) => {
    const { code, text } = await signer(...argv)
    expect([code, text.includes(message)]).toEqual([2, true])
  })
})
