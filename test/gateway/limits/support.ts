import { afterEach } from 'vitest'
import type { EdgeConfig } from '../../../gateway/config.ts'
import type { LimitSettings } from '../../../gateway/limits/config.ts'
import { type Harness, startHarness } from '../support.ts'

const wide: LimitSettings = {
  perAddress: 100,
  perClient: 100,
  loginPerAddress: 100,
  failuresPerAddress: 100,
  failuresPerClient: 100,
}
export const halfPast = Date.parse('2026-03-10T12:00:30.000Z')
export const clock = { at: halfPast }
export const now = (): Date => new Date(clock.at)

export let harness: Harness

/** Starts a gateway with these limits, and high ones for the rest, half a minute after noon. */
export async function limited(
  limits: Partial<LimitSettings>,
  edge: Partial<EdgeConfig> = {},
  more: Parameters<typeof startHarness>[0] = {},
): Promise<Harness> {
  clock.at = halfPast
  harness = await startHarness({
    now,
    edge: { limits: { ...wide, ...limits }, ...edge },
    ...more,
  })
  return harness
}

/** Stops the gateway after each test of the file. */
export const stopAfterEach = (): void => afterEach(() => harness?.stop())

export const basicOf = (id: string) => `Basic ${Buffer.from(`${id}:svc_cs_x`).toString('base64')}`
export const token = (more: { headers?: Record<string, string>; id?: string } = {}) =>
  harness.ask('POST', '/api/v1/oidc/token', {
    form: 'grant_type=client_credentials',
    authorization: basicOf(more.id ?? 'm2m_1'),
    headers: more.headers ?? {},
  })
export const from = (address: string, id = 'm2m_1') =>
  token({ id, headers: { 'x-forwarded-for': address } })
export const limitHeaders = ({ headers }: { headers: Headers }) =>
  ['limit', 'remaining', 'reset'].map((name) => headers.get(`ratelimit-${name}`))
