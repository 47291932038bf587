import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest'
import { main } from '../../../deploy/cli/main.ts'
import { type TestCore, serviceToken, startTestCore } from '../../core/support.ts'

let core: TestCore
beforeAll(async () => {
  core = await startTestCore()
  vi.stubEnv('CORE_TARGET', core.core.target)
  vi.stubEnv('CORE_TOKEN', serviceToken)
})
afterAll(async () => {
  vi.unstubAllEnvs()
  await core.stop()
})
afterEach(() => vi.restoreAllMocks())

/** Runs the command; returns its output and exit code. */
async function tollgate(...argv: string[]) {
  const printed: string[] = []
  const keep = (chunk: unknown) => printed.push(String(chunk)) > 0
  vi.spyOn(process.stdout, 'write').mockImplementation(keep)
  vi.spyOn(process.stderr, 'write').mockImplementation(keep)
  const code = await main([...argv, '--target', core.core.target])
  vi.restoreAllMocks()
  return { code, text: printed.join('') }
}

const list = async (): Promise<{ keys: { kid: string; status: string }[] }> =>
  JSON.parse((await tollgate('keys', 'list', '--json')).text)

describe('tollgate keys', () => {
  it('lists keys, and rotates them early only with --force', async () => {
    const [active, next] = (await list()).keys
    expect([active?.status, next?.status]).toEqual(['active', 'next'])
    const early = await tollgate('keys', 'rotate')
    expect([early.code, early.text]).toEqual([
      1,
      expect.stringContaining('verifiers may not have the next key before'),
    ])
    const rotated = await tollgate('keys', 'rotate', '--force')
    expect([rotated.code, rotated.text]).toEqual([
      0,
      expect.stringContaining(`active ${next?.kid}`),
    ])
    expect((await tollgate('keys', 'list')).text).toMatch(
      new RegExp(
        `^status +kid +alg +made +published until\n[^]*retired +${active?.kid} +RS256 +\\S+Z +\\S+Z\n`,
      ),
    )
  })

  it('rejects wrong usage', async () => {
    expect((await tollgate('keys')).code).toBe(2)
    expect((await tollgate('keys', 'rotate', '--now')).code).toBe(2)
    expect((await tollgate('keys', '--help')).text).toContain('tollgate keys rotate')
  })
})
