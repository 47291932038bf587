import { randomUUID } from 'node:crypto'
import {
  afterAll,
  beforeAll,
  beforeEach,
  describe,
  expect,
  inject,
  it,
  onTestFinished,
} from 'vitest'
import { clock, harness, limited } from './support.ts'

/** Tries a client secret; `right` is the one that core accepts. */
const guess = (id: string, secret: string, address = '203.0.113.9') =>
  harness.ask('POST', '/api/v1/oidc/token', {
    form: 'grant_type=client_credentials',
    authorization: `Basic ${Buffer.from(`${id}:${secret}`).toString('base64')}`,
    headers: { 'x-forwarded-for': address },
  })
const right = 'svc_cs_right'
const onlyRight = () =>
  harness.core.refuseWhen(
    'issueMachineToken',
    ({ authorization }) => !atob(authorization.replace('Basic ', '')).endsWith(`:${right}`),
    'CREDENTIAL_INVALID',
  )
function countsOf(answers: readonly { status: number }[]): Record<number, number> {
  const counts: Record<number, number> = {}
  for (const { status } of answers) counts[status] = (counts[status] ?? 0) + 1
  return counts
}
const many = <T>(count: number, run: (i: number) => Promise<T>): Promise<T[]> =>
  Promise.all(Array.from({ length: count }, (_, i) => run(i)))

// Counters of this process and, if available, in Redis.
describe.each([undefined, ...[inject('parts').redisUrl ?? []].flat()])(
  'parallel guesses, with counters in %s',
  (redisUrl) => {
    const few = { failuresPerClient: 20, failuresPerAddress: 60 }
    const settings = { ...few, perAddress: 100_000, perClient: 100_000 }
    let id: string
    beforeAll(async () => {
      await limited(settings, { trustedProxyHops: 1, redisUrl })
    })
    afterAll(() => harness.stop())
    // Counts in Redis outlive a test, so each test has its own minute and client.
    beforeEach(() => {
      clock.at += 60_000 * (1 + Math.floor(Math.random() * 1e8))
      id = `m2m_${randomUUID()}`
      harness.core.reset()
      onlyRight()
    })

    it('count before they are checked: a thousand for one client count as a thousand', async () => {
      const answers = await many(1_000, (i) => guess(id, `wrong-${i}`))
      expect(countsOf(answers)).toEqual({ 401: 20, 429: 980 })
      expect(harness.core.calls).toHaveLength(20)
      expect(Number(answers.at(-1)?.headers.get('retry-after'))).toBeGreaterThan(0)
    })

    it('with the same wrong secret count like others', async () => {
      const answers = await many(200, () => guess(id, 'wrong'))
      expect(countsOf(answers)).toEqual({ 401: 20, 429: 180 })
    })

    it('under new names have to wait, without locking out others at their address', async () => {
      const [answers, others] = await Promise.all([
        many(300, (i) => guess(`${id}_${i}`, 'wrong')),
        many(20, (i) => guess(`${id}_new_${i}`, right)),
      ])
      expect(countsOf(others)).toEqual({ 200: 20 })
      // Guesses checked together with right secrets may also have to wait.
      expect(countsOf(answers)[401]).toBeLessThanOrEqual(60)
      expect(countsOf(answers)[429]).toBeGreaterThanOrEqual(240)
      expect(answers.every(({ status }) => status === 401 || status === 429)).toBe(true)
      expect((await guess(`${id}_later`, right)).status).toBe(200)
    })

    it('never refuse a credential that has worked, at that address or under that name', async () => {
      expect((await guess(id, right)).status).toBe(200)
      await many(100, (i) => guess(id, `wrong-${i}`))
      expect(countsOf(await many(50, () => guess(id, right)))).toEqual({ 200: 50 })
    })

    it('admit a right credential for any number of concurrent requests', async () => {
      expect(countsOf(await many(200, () => guess(id, right)))).toEqual({ 200: 200 })
    })

    it('count a credential again once it is refused', async () => {
      expect((await guess(id, right)).status).toBe(200)
      harness.core.refuse('issueMachineToken', 'CREDENTIAL_INVALID')
      const answers = await many(30, () => guess(id, right))
      expect(answers.every(({ status }) => status === 401 || status === 429)).toBe(true)
      expect((await guess(id, right)).status).toBe(429)
    })
  },
)

describe('parallel requests', () => {
  it("are counted before they are processed; guesses do not reduce others' limits", async () => {
    await limited(
      { perAddress: 150, perClient: 10, failuresPerClient: 20, failuresPerAddress: 60 },
      { trustedProxyHops: 1 },
    )
    onTestFinished(() => harness.stop())
    onlyRight()
    await many(200, (i) => guess('m2m_1', `wrong-${i}`))
    expect((await guess('m2m_2', right)).status).toBe(200)
    expect(countsOf(await many(100, () => guess('m2m_2', right)))).toEqual({ 200: 9, 429: 91 })
  })
})
