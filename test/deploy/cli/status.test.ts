import { status } from '@grpc/grpc-js'
import { afterAll, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest'
import { serviceToken } from '../../core/support.ts'
import { type CoreDouble, startCoreDouble } from '../../fakes/gateway-core/gateway-core.ts'
import { tollgate } from './support.ts'

let core: CoreDouble
beforeAll(async () => {
  core = await startCoreDouble()
  vi.stubEnv('CORE_TOKEN', serviceToken)
})
afterAll(() => {
  vi.unstubAllEnvs()
  core.stop()
})
beforeEach(() => core.reset())

const show = (...argv: string[]) => tollgate('status', '--target', core.target, ...argv)

describe('tollgate status', () => {
  it('shows since when the end of a stream was not read, and which sidecar is behind', async () => {
    const { code, text } = await show()
    expect(code).toBe(0)
    expect(text).toMatch(/^kafka:tickets:1 .* end not read since \d{4}-\d\d-\d\dT\S+Z$/m)
    expect(text).toMatch(/^sidecar-1 .* 61 +STALLED$/m)
  })

  it('shows sidecars as unknown if core is of an older release', async () => {
    core.fail('listSidecars', status.UNIMPLEMENTED)
    const { code, text } = await show()
    expect([code, text]).toEqual([0, expect.stringMatching(/^Sidecars: unknown/m)])
    expect(text).toContain('kafka:tickets:1')
    expect(JSON.parse((await show('--json')).text)).not.toHaveProperty('sidecars')
  })

  it('fails if core fails', async () => {
    core.fail('listSidecars', status.UNKNOWN)
    expect((await show()).code).toBe(1)
  })
})
