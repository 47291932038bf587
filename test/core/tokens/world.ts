import { afterAll, beforeAll, beforeEach } from 'vitest'
import {
  type Rpcs,
  type TestApp,
  type TestCore,
  bearerOf,
  outcome,
  startTestCore,
} from '../support.ts'

export let core: TestCore
export let app: TestApp
export let m2m: Rpcs

/** Registers the hooks of a test file: one core, and for each test a new app with the user ada. */
export function setUpTokens(): void {
  beforeAll(async () => {
    core = await startTestCore()
  })
  afterAll(() => core.stop())
  beforeEach(async () => {
    app = await core.newApp()
    m2m = core.as(app.basic)
    await m2m.upsertUser({ clientId: app.clientId, externalUserId: 'ada' })
  })
}

export const mint = (scope?: string) =>
  m2m.mintUserToken({ clientId: app.clientId, externalUserId: 'ada', scope })
export const useUser = (token: string, of: Rpcs = core.as(bearerOf(token))) =>
  outcome(of.getOwnBalance())
export const useMachine = (token: string, of: Rpcs = core.as(bearerOf(token))) =>
  outcome(of.listUsers({ clientId: app.clientId }))
export const jwks = async () => ({
  keys: (await core.as().getJwks()).keys.map((key) => ({
    ...key,
    n: key.n ?? '',
    e: key.e ?? '',
    crv: key.crv ?? '',
    x: key.x ?? '',
    y: key.y ?? '',
  })),
})
