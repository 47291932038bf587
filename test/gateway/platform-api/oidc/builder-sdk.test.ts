import { PmtHouseClient } from '@pymthouse/builder-sdk'
import {
  createDeviceExchangeHandler,
  decodeGatewayToken,
  decodeJwtPayload,
  exchangeDeviceTokenForSigner,
  mintGatewayToken,
  mintSignerSessionFromApiKeyDirect,
  mintSignerTokenFromDeviceToken,
  mintUserSignerToken,
} from '@pymthouse/builder-sdk/signer/server'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { parseBasic } from '../../../../gateway/auth/credentials.ts'
import { publicUrl } from '../../support.ts'
import { type Grants, issuer, startGrants } from './support.ts'

// The integrators' unmodified library against a real core. Only its fetch is redirected to this
// gateway.
let grants: Grants
beforeAll(async () => {
  grants = await startGrants()
})
afterAll(() => grants.stop())

const toGateway: typeof fetch = (input, init) =>
  fetch(String(input).replace(publicUrl, grants.real.url), init)

function settings() {
  const pair = parseBasic(grants.app.basic)
  return {
    issuerUrl: issuer,
    publicClientId: grants.app.clientId,
    m2mClientId: pair?.id ?? '',
    m2mClientSecret: pair?.secret ?? '',
    fetch: toGateway,
  }
}

const micros = expect.stringMatching(/^\d+$/)
const balance = { balanceUsdMicros: micros, lifetimeGrantedUsdMicros: '5000000' }
const keyOf = () => grants.app.apiKey.slice('Bearer '.length)

describe('integrators’ library', () => {
  it('mints a signer token for a new user', async () => {
    const token = await mintUserSignerToken({ ...settings(), externalUserId: 'sdk-new' })
    expect(token).toMatchObject(balance)
    expect(decodeJwtPayload(token.jwt)).toMatchObject({
      sub: 'sdk-new',
      client_id: grants.app.clientId,
      token_use: 'signer',
    })
  })

  it('builds a gateway bundle from its credentials, and from a key', async () => {
    const at = { ...settings(), signer: 'https://signer.example' }
    const bundles = await Promise.all([
      mintGatewayToken({ ...at, source: 'm2m', externalUserId: 'ada' }),
      mintGatewayToken({ ...at, source: 'apiKey', apiKey: keyOf() }),
    ])
    for (const bundle of bundles) {
      const { signer, signer_headers: headers } = decodeGatewayToken(bundle)
      expect(signer).toBe('https://signer.example')
      const jwt = headers?.['Authorization']?.slice('Bearer '.length) ?? ''
      expect(decodeJwtPayload(jwt)).toMatchObject({ external_user_id: 'ada' })
    }
  })

  it('exchanges a device token at the issuer and at the facade', async () => {
    const deviceToken = await grants.userToken()
    const atIssuer = await mintSignerTokenFromDeviceToken({ ...settings(), deviceToken })
    expect(atIssuer).toMatchObject({ ...balance, scope: 'sign:job' })
    const facade = { facadeUrl: publicUrl, deviceToken, fetch: toGateway }
    expect(await exchangeDeviceTokenForSigner(facade)).toMatchObject(balance)
    const handle = createDeviceExchangeHandler(settings())
    const answer = await handle(
      new Request('https://app.example/api/signer/device/exchange', {
        method: 'POST',
        body: JSON.stringify({ deviceToken }),
      }),
    )
    expect([answer.status, await answer.json()]).toMatchObject([200, balance])
  })

  it("exchanges a key at the app's endpoint", async () => {
    const session = await mintSignerSessionFromApiKeyDirect({ ...settings(), apiKey: keyOf() })
    expect(session).toMatchObject(balance)
  })

  it('opens an opaque session for a user, and provisions a new one', async () => {
    const client = new PmtHouseClient(settings())
    const session = await client.mintSignerSessionForExternalUser({ externalUserId: 'sdk-session' })
    expect(JSON.stringify(session)).toContain('svc_ss_')
    const exchanged = await client.exchangeForSignerSession({
      userJwt: await grants.userToken(),
      omitResource: true,
    })
    expect(exchanged.access_token).toMatch(/^svc_ss_/)
  })
})
