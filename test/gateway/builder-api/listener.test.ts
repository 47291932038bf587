import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { clientId } from '../../fakes/gateway-core/identity.ts'
import { type Harness, publicUrl, startHarness } from '../support.ts'

const limits = {
  perAddress: 100,
  perClient: 2,
  loginPerAddress: 100,
  failuresPerAddress: 100,
  failuresPerClient: 100,
}

let harness: Harness
beforeEach(async () => {
  harness = await startHarness({ edge: { limits }, now: () => new Date('2026-03-10T12:00:30Z') })
})
afterEach(() => harness.stop())

const app = `/api/v1/apps/${clientId}`
const form = 'grant_type=x&subject_token=y&subject_token_type=z'

describe('builder API listener', () => {
  it('limits exchanges per app in counters shared by both listeners', async () => {
    const exchange = (listener: Pick<Harness, 'ask'>) =>
      listener.ask('POST', `${app}/oidc/token`, { form, authorization: null })
    expect((await exchange(harness.builder)).status).toBe(200)
    // On the platform API the fake core answers 404 for the app, but the request still counts.
    expect((await exchange(harness)).status).toBe(404)
    const { status, headers, body } = await exchange(harness.builder)
    expect([status, body['error']]).toEqual([429, 'temporarily_unavailable'])
    expect(headers.get('retry-after')).toBe('30')
  })

  it("lets only the app's origins read its answers", async () => {
    const usage = `${app}/usage?meter=fee_wei`
    const from = async (origin: string) =>
      (
        await harness.builder.ask('GET', usage, { authorization: 'Bearer x', headers: { origin } })
      ).headers.get('access-control-allow-origin')
    expect(await from('https://other.example')).toBeNull()
    harness.core.answer('checkOrigin', { allowed: true })
    expect(await from('https://page.example')).toBe('https://page.example')
  })

  it('forwards the credential and all parameters to core', async () => {
    await harness.builder.ask(
      'GET',
      `${app}/usage?meter=fee_wei&groupBy=pipeline&groupBy=model_id&from=a&to=b&externalUserId=ada`,
      { authorization: 'Bearer sk_x' },
    )
    const { rpc, request, metadata } = harness.core.last()
    expect([rpc, metadata.get('authorization')]).toEqual(['queryMeter', ['Bearer sk_x']])
    expect(request).toEqual({
      clientId,
      meter: 'fee_wei',
      externalUserId: 'ada',
      from: 'a',
      to: 'b',
      groupBy: ['pipeline', 'model_id'],
    })
  })

  it('returns figures beyond 2^53 also with all digits', async () => {
    const { body } = await harness.builder.ask('GET', `${app}/usage?meter=fee_wei`, {
      authorization: 'Bearer x',
    })
    const valueExact = '1250000000000000000001'
    expect(body['rows']).toMatchObject([{ value: Number(valueExact), valueExact }])
  })

  it("batches exchanges of our own tokens, but not of other issuers' tokens", async () => {
    const tokenOf = (iss: string) =>
      [{ alg: 'RS256' }, { iss }, {}]
        .map((part) => Buffer.from(JSON.stringify(part)).toString('base64url'))
        .join('.')
    const exchange = (subject_token: string) =>
      harness.builder.ask('POST', `${app}/oidc/token`, {
        form: new URLSearchParams({ grant_type: 'x', subject_token }).toString(),
        authorization: null,
      })
    expect((await exchange(tokenOf('https://idp.example'))).status).toBe(200)
    expect(harness.core.batches).toEqual([])
    expect((await exchange(tokenOf(`${publicUrl}/api/v1/oidc`))).status).toBe(200)
    expect(harness.core.batches).toEqual(['exchangeBuilderToken'])
    expect(harness.core.names()).toEqual(['exchangeBuilderToken', 'exchangeBuilderToken'])
  })

  it('returns 503, never 401, when core does not answer', async () => {
    for (const rpc of ['provisionUser', 'exchangeBuilderToken', 'queryMeter'] as const)
      harness.core.refuse(rpc, 'UNAVAILABLE')
    const statuses = await Promise.all([
      harness.builder.ask('POST', `${app}/users`, { json: { externalUserId: 'ada' } }),
      harness.builder.ask('POST', `${app}/oidc/token`, { form, authorization: null }),
      harness.builder.ask('GET', `${app}/usage?meter=fee_wei`, { authorization: 'Bearer x' }),
    ])
    expect(statuses.map(({ status }) => status)).toEqual([503, 503, 503])
  })
})
