import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest'
import { main } from '../../../deploy/cli/main.ts'
import { type TestApp, type TestCore, serviceToken, startTestCore } from '../../core/support.ts'

let core: TestCore
let app: TestApp
beforeAll(async () => {
  core = await startTestCore({
    CORE_TOKEN: '',
    CORE_TOKEN_OPERATOR: serviceToken,
    CORE_TOKEN_GATEWAY: 'g'.repeat(32),
  })
  vi.stubEnv('CORE_TARGET', core.core.target)
  vi.stubEnv('CORE_TOKEN', '')
  vi.stubEnv('CORE_TOKEN_OPERATOR', serviceToken)
  app = await core.newApp()
})
afterAll(async () => {
  vi.unstubAllEnvs()
  await core.stop()
})
afterEach(() => vi.restoreAllMocks())

/** Runs the command with the operator's own token; returns its output and exit code. */
async function signer(...argv: string[]) {
  const printed: string[] = []
  const keep = (chunk: unknown) => printed.push(String(chunk)) > 0
  vi.spyOn(process.stdout, 'write').mockImplementation(keep)
  vi.spyOn(process.stderr, 'write').mockImplementation(keep)
  const code = await main(['signer', ...argv, '--target', core.core.target])
  vi.restoreAllMocks()
  return { code, text: printed.join('') }
}

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
    [['rotate'], 'needs a name'],
    [['rotate', 'x', '--overlap-seconds', 'y'], 'whole number'],
    [['make', 'x'], 'create, list, rotate, apps or remove'],
  ])('refuses %j', async (argv, message) => {
    const { code, text } = await signer(...argv)
    expect([code, text.includes(message)]).toEqual([2, true])
  })
})
