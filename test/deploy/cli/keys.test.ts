import { beforeAll, describe, expect, it } from 'vitest'
import { operate, startCli } from './support.ts'

beforeAll(async () => {
  const cli = await startCli()
  return cli.stop
})

const list = async (): Promise<{ keys: { kid: string; status: string }[] }> =>
  JSON.parse((await operate('keys', 'list', '--json')).text)

describe('tollgate keys', () => {
  it('lists keys, and rotates them early only with --force', async () => {
    const [active, next] = (await list()).keys
    expect([active?.status, next?.status]).toEqual(['active', 'next'])
    const early = await operate('keys', 'rotate')
    expect([early.code, early.text]).toEqual([
      1,
      expect.stringContaining('verifiers may not have the next key before'),
    ])
    const rotated = await operate('keys', 'rotate', '--force')
    expect([rotated.code, rotated.text]).toEqual([
      0,
      expect.stringContaining(`active ${next?.kid}`),
    ])
    expect((await operate('keys', 'list')).text).toMatch(
      new RegExp(
        `^status +kid +alg +made +published until\n[^]*retired +${active?.kid} +RS256 +\\S+Z +\\S+Z\n`,
      ),
    )
  })

  it('rejects wrong usage', async () => {
    expect((await operate('keys')).code).toBe(2)
    expect((await operate('keys', 'rotate', '--now')).code).toBe(2)
    expect((await operate('keys', '--help')).text).toContain('tollgate keys rotate')
  })
})
