import { randomBytes } from 'node:crypto'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import {
  type Operation,
  type Real,
  type RealApp,
  addressFor,
  bodyFor,
  operationsOf,
  startReal,
} from './real.ts'

// Authenticates by the subject token in its form.
const byBody = '/api/v1/apps/{clientId}/oidc/token'

let real: Real
let mine: RealApp
let theirs: RealApp
let scoped: readonly Operation[]
beforeAll(async () => {
  real = await startReal()
  mine = await real.newApp('mine')
  theirs = await real.newApp('theirs')
  const { operations } = await operationsOf(real.url, mine.session)
  scoped = operations.filter(({ path }) => path.includes('/apps/{clientId}'))
})
afterAll(() => real.stop())

interface Seen {
  readonly status: number
  readonly type: string | null
  readonly text: string
}

const headersOf = ({ headers }: RequestInit): Record<string, string> =>
  Object.fromEntries(new Headers(headers))

/** Returns the answer without the parts that differ between any two answers. */
async function ask(
  operation: Operation,
  clientId: string,
  credential: Readonly<Record<string, string>>,
): Promise<Seen> {
  const body = bodyFor(operation)
  const response = await fetch(real.url + addressFor(operation, { clientId }), {
    method: operation.method,
    redirect: 'manual',
    ...body,
    headers: { ...headersOf(body), ...credential },
  })
  const text = (await response.text())
    .replace(/"correlation_id":"[^"]*"/, '')
    .replaceAll(clientId, '{clientId}')
  return { status: response.status, type: response.headers.get('content-type'), text }
}

const unknownApp = () => `app_${randomBytes(12).toString('hex')}`

/** Exchanges the subject token at the app. */
const exchange = (
  clientId: string,
  subjectToken: string,
  headers: Readonly<Record<string, string>> = {},
) =>
  fetch(real.url + byBody.replace('{clientId}', clientId), {
    method: 'POST',
    headers,
    body: new URLSearchParams({
      grant_type: 'urn:ietf:params:oauth:grant-type:token-exchange',
      subject_token: subjectToken,
      subject_token_type: 'urn:ietf:params:oauth:token-type:access_token',
    }),
  })

describe('exchange at an app', () => {
  const bearer = (authorization: string) => authorization.replace('Bearer ', '')

  it.each([
    ["another app's user token", 404, () => ({ token: bearer(mine.userToken) })],
    ["another app's key", 404, () => ({ token: bearer(mine.apiKey) })],
    [
      "another app's M2M client",
      404,
      () => ({ token: bearer(mine.userToken), headers: { authorization: mine.basic } }),
    ],
    ['a malformed token', 400, () => ({ token: 'nonsense' })],
    ['no token', 400, () => ({ token: '' })],
    [
      'a client with a wrong secret',
      401,
      () => ({
        token: bearer(mine.userToken),
        headers: { authorization: mine.basic.slice(0, -6) },
      }),
    ],
  ] satisfies [string, number, () => { token: string; headers?: Record<string, string> }][])(
    'answers alike for another app and an unknown one: %s',
    async (_who, expected, credential) => {
      const seen = async (clientId: string) => {
        const { token, headers }: { token: string; headers?: Record<string, string> } = credential()
        const response = await exchange(clientId, token, headers)
        return {
          status: response.status,
          text: (await response.text()).replace(/"correlation_id":"[^"]*"/, ''),
        }
      }
      const foreign = await seen(theirs.clientId)
      expect(foreign.status).toBe(expected)
      for (const clientId of [unknownApp(), theirs.m2mClientId, mine.m2mClientId])
        expect(await seen(clientId)).toEqual(foreign)
    },
  )

  it('answers its own users', async () => {
    expect(
      (await exchange(mine.clientId, bearer(mine.userToken), { authorization: mine.basic })).status,
    ).toBe(200)
    expect((await exchange(mine.clientId, bearer(mine.apiKey))).status).toBe(200)
  })
})

const median = (times: number[]): number =>
  times.toSorted((a, b) => a - b)[Math.floor(times.length / 2)] ?? 0
const rounds = 200
const tries = 6

/**
 * Returns the ratio of `measure`'s median durations for another app and an unknown one, per
 * attempt. Stops when they are close or after `tries`.
 */
async function timeRatios(measure: (clientId: string) => Promise<unknown>): Promise<number[]> {
  const one = async (clientId: string): Promise<number> => {
    const began = performance.now()
    await measure(clientId)
    return performance.now() - began
  }
  const ratios: number[] = []
  // Another process may disturb one measurement, but not all of them.
  for (let attempt = 0; attempt < tries; attempt++) {
    const foreign: number[] = []
    const unknown: number[] = []
    for (let i = 0; i < rounds; i++) {
      const inTurn = [
        async () => foreign.push(await one(theirs.clientId)),
        async () => unknown.push(await one(unknownApp())),
      ]
      for (const each of i % 2 ? inTurn : inTurn.toReversed()) await each()
    }
    ratios.push(median(foreign) / median(unknown))
    if (distance(ratios) <= 0.1) break
  }
  return ratios
}

const distance = (ratios: readonly number[]): number => Math.abs((ratios.at(-1) ?? 0) - 1)

describe('time of a refusal', () => {
  it.each([
    ['GET', '/api/v1/apps/{clientId}/users'],
    ['POST', '/api/v1/apps/{clientId}/users/{externalUserId}/keys'],
    ['GET', '/api/v1/builder/apps/{clientId}/usage'],
  ])(
    'of %s %s does not distinguish another app from an unknown one',
    async (method, path) => {
      const operation = scoped.find((each) => each.method === method && each.path === path)
      if (!operation) throw new Error('no such route')
      const ratios = await timeRatios((clientId) =>
        ask(operation, clientId, { authorization: mine.basic }),
      )
      expect(distance(ratios), `ratios of the medians: ${ratios.join(' ')}`).toBeLessThanOrEqual(
        0.1,
      )
    },
    180_000,
  )

  it('of an exchange does not distinguish them either', async () => {
    const token = mine.userToken.replace('Bearer ', '')
    const ratios = await timeRatios(async (clientId) => (await exchange(clientId, token)).text())
    expect(distance(ratios), `ratios of the medians: ${ratios.join(' ')}`).toBeLessThanOrEqual(0.1)
  }, 180_000)
})
