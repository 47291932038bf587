import { createHash } from 'node:crypto'
import { silentLog } from '../../../core/lib/log.ts'
import { createMetrics } from '../../../core/lib/metrics.ts'
import { unary } from '../../../core/lib/grpc.ts'
import { serviceTokenHeader } from '../../../proto/headers.ts'
import type { LoginProviderConfig } from '../../../gateway/pages/config.ts'
import { startGateway } from '../../../gateway/server.ts'
import { credentials } from '@grpc/grpc-js'
import * as accounts from '../../../proto/gen/ts-proto/tollgate/identity/v1/accounts.ts'
import * as authorization from '../../../proto/gen/ts-proto/tollgate/tokens/v1/authorization.ts'
import * as devices from '../../../proto/gen/ts-proto/tollgate/tokens/v1/devices.ts'
import * as grants from '../../../proto/gen/ts-proto/tollgate/tokens/v1/grants.ts'
import { type TestCore, serviceToken, startTestCore } from '../../core/support.ts'
import { registerSecret } from '../../support/run/secrecy.ts'

export const publicUrl = 'https://svc.example'
export const password = registerSecret('a long enough password')
export const verifier = 'v'.repeat(43)
export const challenge = createHash('sha256').update(verifier).digest('base64url')

/** Starts the gateway with a real core, on a clock controlled by the test. */
export async function startPages(
  loginProvider?: LoginProviderConfig,
  env: Readonly<Record<string, string>> = {},
) {
  const test: TestCore = await startTestCore({ LOGIN_OIDC_ALLOWED_DOMAINS: '*', ...env })
  const gateway = await startGateway(
    {
      host: '127.0.0.1',
      platformPort: 0,
      builderPort: 0,
      publicUrl,
      tokenAlg: 'RS256',
      core: { target: test.core.target, token: serviceToken, deadlineMs: 10_000 },
      edge: {
        limits: null,
        redisUrl: undefined,
        trustedProxyHops: 0,
        corsOrigins: [],
        ingestSecret: undefined,
        connections: { max: 10_000, maxPerAddress: null },
      },
      loginProvider,
    },
    { log: silentLog(), metrics: createMetrics('gateway'), now: test.clock.now },
  )
  const client = new accounts.AccountServiceClient(test.core.target, credentials.createInsecure())
  const deviceClient = new devices.DeviceServiceClient(
    test.core.target,
    credentials.createInsecure(),
  )
  const authorizationClient = new authorization.AuthorizationServiceClient(
    test.core.target,
    credentials.createInsecure(),
  )
  const grantClient = new grants.GrantServiceClient(test.core.target, credentials.createInsecure())
  const options = { deadlineMs: 10_000, headers: { [serviceTokenHeader]: serviceToken } }
  return {
    ...test,
    url: gateway.platformUrl,
    createAccount: (request: Partial<accounts.CreateAccountRequest>) =>
      unary(client.createAccount.bind(client))(
        accounts.CreateAccountRequest.fromPartial(request),
        options,
      ),
    updateAccount: (request: Partial<accounts.UpdateAccountRequest>) =>
      unary(client.updateAccount.bind(client))(
        accounts.UpdateAccountRequest.fromPartial(request),
        options,
      ),
    startReset: (email: string) =>
      unary(client.startPasswordReset.bind(client))({ email }, options),
    startDevice: (clientId: string) =>
      unary(deviceClient.startDevice.bind(deviceClient))(
        { clientId, scope: undefined, address: undefined },
        options,
      ),
    redeem: (request: grants.RedeemAuthorizationCodeRequest) =>
      unary(grantClient.redeemAuthorizationCode.bind(grantClient))(request, options),
    grantAuthorization: (request: authorization.GrantAuthorizationRequest) =>
      unary(authorizationClient.grantAuthorization.bind(authorizationClient))(request, options),
    browser: () => createBrowser(gateway.platformUrl),
    stop: async () => {
      client.close()
      deviceClient.close()
      grantClient.close()
      authorizationClient.close()
      await gateway.stop()
      await test.stop()
    },
  }
}

export type Pages = Awaited<ReturnType<typeof startPages>>

export interface Seen {
  readonly status: number
  readonly headers: Headers
  readonly text: string
  /** The redirect's target, absolute. */
  readonly location: URL | null
  /** The hidden fields of its form. */
  readonly fields: Readonly<Record<string, string>>
}

/** A browser's handling of cookies and forms. It does not follow redirects by itself. */
export function createBrowser(url: string) {
  const jar = new Map<string, string>()

  async function send(
    method: string,
    path: string,
    { body, headers }: { body?: string; headers?: Record<string, string> },
  ): Promise<Seen> {
    const cookie = [...jar].map(([name, value]) => `${name}=${value}`).join('; ')
    const response = await fetch(url + path, {
      method,
      redirect: 'manual',
      headers: { ...(cookie === '' ? {} : { cookie }), ...headers },
      ...(body === undefined ? {} : { body }),
    })
    for (const line of response.headers.getSetCookie()) {
      const [, name = '', value = ''] = /^([^=]+)=([^;]*)/.exec(line) ?? []
      if (value === '') jar.delete(name)
      else jar.set(name, value)
    }
    const text = await response.text()
    const location = response.headers.get('location')
    const hidden = [...text.matchAll(/<input type="hidden" name="([^"]*)" value="([^"]*)">/g)]
    return {
      status: response.status,
      headers: response.headers,
      text,
      location: location === null ? null : new URL(location, publicUrl),
      fields: Object.fromEntries(
        hidden.map(([, name = '', value = '']) => [name, unescape(value)]),
      ),
    }
  }

  const get = (path: string): Promise<Seen> => send('GET', path, {})
  const post = (
    path: string,
    fields: Record<string, string>,
    origin: string | null = publicUrl,
  ): Promise<Seen> =>
    send('POST', path, {
      body: new URLSearchParams(fields).toString(),
      headers: {
        'content-type': 'application/x-www-form-urlencoded',
        ...(origin === null ? {} : { origin }),
      },
    })

  async function logIn(email: string, secret: string = password, returnTo?: string): Promise<Seen> {
    const page = await get(
      `/login${returnTo === undefined ? '' : `?return_to=${encodeURIComponent(returnTo)}`}`,
    )
    return post('/login', { ...page.fields, email, password: secret })
  }

  return { get, post, logIn, jar }
}

export type Browser = ReturnType<typeof createBrowser>

const unescape = (text: string): string =>
  text
    .replaceAll('&lt;', '<')
    .replaceAll('&gt;', '>')
    .replaceAll('&quot;', '"')
    .replaceAll('&#39;', "'")
    .replaceAll('&amp;', '&')
