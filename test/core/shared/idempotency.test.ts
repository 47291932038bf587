import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { type Idempotency, createIdempotency } from '../../../core/shared/idempotency.ts'
import { createSealing } from '../../../core/shared/sealing/sealing.ts'
import { registerSecret } from '../../support/run/secrecy.ts'
import { type TestCore, begin, outcome, second, startTestCore } from '../support.ts'

const sealing = createSealing([registerSecret('sealing-key-of-the-idempotency-tests-012345')])
let core: TestCore
let idempotency: Idempotency
beforeAll(async () => {
  core = await startTestCore()
  idempotency = createIdempotency({ pool: core.sql, sealing, now: core.clock.now })
})
afterAll(() => core.stop())
beforeEach(() => core.clock.set(begin))

const requestOf = (key: string | undefined, body: unknown = 'a body') => ({
  scope: 'a test',
  key,
  body,
})
const claims = async (): Promise<number | null> =>
  (await core.sql.query('select from idempotency_claims')).rowCount

describe('idempotency.alone', () => {
  it('runs one request at a time, and runs again after a failure', async () => {
    const one = requestOf('one')
    const seen: string[] = []
    await idempotency.alone(one, async () => {
      for (const other of [one, requestOf('one', 'another body')])
        seen.push(await outcome(idempotency.alone(other, async () => 'twice')))
      seen.push(await idempotency.alone(requestOf('two'), async () => 'another key'))
    })
    expect(seen).toEqual(['IDEMPOTENCY_CONFLICT', 'IDEMPOTENCY_CONFLICT', 'another key'])
    const failing = idempotency.alone(one, () => Promise.reject(new Error('the provider is away')))
    await expect(failing).rejects.toThrow('the provider is away')
    expect(await idempotency.alone(one, async () => 'done')).toBe('done')
    expect(await claims()).toBe(0)
  })

  it('returns a stored reply without running', async () => {
    const request = requestOf('answered')
    const work = () => idempotency.once(request, async () => 'first')
    expect(await idempotency.alone(request, work)).toBe('first')
    expect(await idempotency.alone(request, async () => 'again')).toBe('first')
    const other = requestOf('answered', 'another body')
    expect(await outcome(idempotency.alone(other, work))).toBe('IDEMPOTENCY_CONFLICT')
  })

  it("takes over a claim a minute after its process died, and ignores that process's late end", async () => {
    const request = requestOf('cut off')
    const dead = Promise.withResolvers<string>()
    const cut = idempotency.alone(request, () => dead.promise)
    await expect.poll(claims).toBe(1)
    core.clock.advance(59 * second)
    expect(await outcome(idempotency.alone(request, async () => 'early'))).toBe(
      'IDEMPOTENCY_CONFLICT',
    )
    core.clock.advance(second)
    await idempotency.alone(request, async () => {
      dead.resolve('late')
      await cut
      expect(await claims()).toBe(1)
    })
    expect(await claims()).toBe(0)
  })

  it('runs every request without a key', async () => {
    const twice = () =>
      idempotency.alone(requestOf(undefined), () =>
        idempotency.alone(requestOf(undefined), async () => 'inner'),
      )
    expect(await twice()).toBe('inner')
  })
})
