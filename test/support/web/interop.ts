import * as oidc from 'openid-client'
import { basic } from '../../../deploy/cli/client.ts'
import { type Browser, type Page, createBrowser } from './interop-browser.ts'
import { startTestService } from '../deployment/service.ts'

export const accessTokenType = 'urn:ietf:params:oauth:token-type:access_token'
export const exchangeGrant = 'urn:ietf:params:oauth:grant-type:token-exchange'
export const deviceGrant = 'urn:ietf:params:oauth:grant-type:device_code'
export const redirectUri = 'https://app.example/cb'
export const loggedOutUri = 'https://app.example/bye'

/** Starts a service whose demo app allows every kind of login and has the user ada. */
export async function startInterop() {
  const running = await startTestService({ DEVICE_POLL_SECONDS: '1' })
  const { quickstart } = running.service
  const { clientId, m2mClientId, m2mClientSecret, issuer } = quickstart
  const m2mBasic = basic(m2mClientId, m2mClientSecret)

  async function call(
    method: string,
    path: string,
    options: { body?: unknown; headers?: Record<string, string> } = {},
  ) {
    const { body, headers = { authorization: m2mBasic } } = options
    const response = await fetch(quickstart.platformUrl + path, {
      method,
      headers: {
        ...headers,
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    })
    const text = await response.text()
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`)
    return JSON.parse(text)
  }

  const client = (id: string, auth: oidc.ClientAuth) =>
    oidc.discovery(new URL(issuer), id, {}, auth, {
      execute: [oidc.allowInsecureRequests, oidc.enableNonRepudiationChecks],
    })
  const browser = (): Browser => createBrowser(issuer)
  const credentials = { email: quickstart.ownerEmail, password: quickstart.ownerPassword }

  /** Submits the owner's credentials if the page is the login page. */
  async function logIn(browser: Browser, page: Page): Promise<Page> {
    return page.title.startsWith('Log in') ? browser.click(page, 'Log in', credentials) : page
  }

  /** Returns the headers that the owner's browser sends with a request of our own pages. */
  async function ownerSession(): Promise<Record<string, string>> {
    const own = browser()
    await logIn(own, await own.visit('/login'))
    const page = await own.visit('/login')
    return {
      cookie: own.cookies(),
      origin: own.origin,
      'x-csrf-token': page.form?.fields['csrf_token'] ?? '',
    }
  }

  await call('PUT', `/api/v1/apps/${clientId}`, {
    headers: await ownerSession(),
    body: {
      redirectUris: [redirectUri, 'http://127.0.0.1/cb'],
      postLogoutRedirectUris: [loggedOutUri],
      grantTypes: ['authorization_code', 'refresh_token', deviceGrant],
      allowedScopes: ['openid', 'profile', 'email', 'offline_access', 'sign:job'],
    },
  })
  await call('POST', `/api/v1/apps/${clientId}/users`, { body: { externalUserId: 'ada' } })
  const userToken = async (): Promise<string> =>
    (await call('POST', `/api/v1/apps/${clientId}/users/ada/token`, { body: {} })).access_token

  return {
    running,
    quickstart,
    issuer,
    call,
    browser,
    logIn,
    ownerSession,
    userToken,
    client,
    /** The app's public client; `backend` is its M2M client with the secret in the header. */
    app: await client(clientId, oidc.None()),
    backend: await client(m2mClientId, oidc.ClientSecretBasic(m2mClientSecret)),
    stop: running.stop,
  }
}

export type Interop = Awaited<ReturnType<typeof startInterop>>

/**
 * Records the error codes that a token endpoint returns to this client (null for a success) and
 * their times.
 */
export function recordAnswers(config: oidc.Configuration) {
  const answers: { error: string | null; at: number }[] = []
  config[oidc.customFetch] = async (url, { body = null, signal = null, ...options }) => {
    const response = await fetch(url, { ...options, body, signal })
    const [, error = null] = /"error":"(\w+)"/.exec(await response.clone().text()) ?? []
    answers.push({ error, at: Date.now() })
    return response
  }
  return answers
}

export interface AuthorizeOptions {
  readonly redirect?: string
  readonly scope?: string
  readonly more?: Readonly<Record<string, string>>
}

/**
 * Starts an authorization request with openid-client and takes the owner's browser through the
 * pages.
 */
export async function authorize(
  interop: Interop,
  {
    redirect = redirectUri,
    scope = 'openid profile email offline_access sign:job',
    more = {},
  }: AuthorizeOptions = {},
) {
  const checks = {
    pkceCodeVerifier: oidc.randomPKCECodeVerifier(),
    expectedState: oidc.randomState(),
    expectedNonce: oidc.randomNonce(),
  }
  const browser = interop.browser()
  const first = await browser.visit(
    oidc.buildAuthorizationUrl(interop.app, {
      redirect_uri: redirect,
      scope,
      state: checks.expectedState,
      nonce: checks.expectedNonce,
      prompt: 'consent',
      code_challenge: await oidc.calculatePKCECodeChallenge(checks.pkceCodeVerifier),
      code_challenge_method: 'S256',
      ...more,
    }),
  )
  const consent = await interop.logIn(browser, first)
  const pages = [first.title, consent.title]
  const allow = () => browser.click(consent, 'Allow')
  const deny = () => browser.click(consent, 'Do not allow')
  return { browser, checks, pages, allow, deny }
}

/** Logs in with the whole code flow. */
export async function logInByCode(interop: Interop, options: AuthorizeOptions = {}) {
  const { browser, checks, allow } = await authorize(interop, options)
  const { left } = await allow()
  const callback = left ?? new URL('none:')
  const tokens = await oidc.authorizationCodeGrant(interop.app, callback, {
    ...checks,
    idTokenExpected: true,
  })
  return { browser, checks, callback, tokens }
}
