import {
  Client,
  type OAuthClientProvider,
  type OAuthDiscoveryState,
  type StoredOAuthClientInformation,
  type StoredOAuthTokens,
  StreamableHTTPClientTransport,
  UnauthorizedError,
} from '@modelcontextprotocol/client'
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { registerSecret } from '../../support/run/secrecy.ts'
import { clientId } from '../../fakes/gateway-core/identity.ts'
import type { RealApp } from '../real.ts'
import { asRecord, startHarness } from '../support.ts'
import { type Edge, callback, edge, page, startEdge } from './edge-support.ts'
import { callOf, mcpHeaders } from './support.ts'

let started: Edge
let app: RealApp
let other: RealApp
beforeAll(async () => {
  started = await startEdge()
  app = await started.real.newApp('edge')
  other = await started.real.newApp('other')
})
afterAll(() => started.stop())

const pathOf = (id: string): string => `/api/v1/apps/${id}/mcp`

/** A program's memory of its registration and tokens. */
function createMemory(registered?: StoredOAuthClientInformation) {
  const kept: {
    client: StoredOAuthClientInformation | undefined
    tokens: StoredOAuthTokens | undefined
    discovery: OAuthDiscoveryState | undefined
    address: URL | undefined
    verifier: string
  } = {
    client: registered,
    tokens: undefined,
    discovery: undefined,
    address: undefined,
    verifier: '',
  }
  const provider: OAuthClientProvider = {
    redirectUrl: callback,
    clientMetadata: {
      redirect_uris: [callback],
      client_name: 'An agent',
      grant_types: ['authorization_code', 'refresh_token'],
    },
    clientInformation: () => kept.client,
    ...(registered === undefined && {
      saveClientInformation: (client) => void (kept.client = client),
    }),
    tokens: () => kept.tokens,
    saveTokens: (tokens) => {
      for (const text of [tokens.access_token, tokens.refresh_token ?? '']) registerSecret(text)
      kept.tokens = tokens
    },
    redirectToAuthorization: (address) => void (kept.address = address),
    saveCodeVerifier: (verifier) => void (kept.verifier = verifier),
    codeVerifier: () => kept.verifier,
    discoveryState: () => kept.discovery,
    saveDiscoveryState: (discovery) => void (kept.discovery = discovery),
  }
  return { kept, provider }
}

describe('stock MCP client that only has the URL', () => {
  const modes = [
    { mode: 'legacy', revision: '2025-11-25' },
    { mode: 'auto', revision: '2026-07-28' },
  ] as const

  /** Adds the initial access token when registering, because the client cannot send one. */
  function fetchWith(initialAccessToken: string) {
    return (url: string | URL, init: RequestInit = {}) => {
      const headers = new Headers(init.headers)
      if (String(url) === `${edge}/api/v1/oidc/register`)
        headers.set('authorization', `Bearer ${initialAccessToken}`)
      return started.customFetch(String(url), { ...init, headers })
    }
  }

  /** Connects, and logs a person in if necessary. */
  async function connect(
    { kept, provider }: ReturnType<typeof createMemory>,
    mode: 'legacy' | 'auto' = 'legacy',
  ): Promise<Client> {
    const fetch = fetchWith((await started.newToken(app)).token)
    const open = () => {
      const address = new URL(edge + pathOf(app.clientId))
      const transport = new StreamableHTTPClientTransport(address, {
        authProvider: provider,
        fetch,
      })
      const client = new Client({ name: 'test', version: '1' }, { versionNegotiation: { mode } })
      return { transport, client, connected: client.connect(transport) }
    }
    const first = open()
    await expect(first.connected).rejects.toThrow(UnauthorizedError)
    const answer = await started.allow(app, kept.address ?? new URL(edge))
    await first.transport.finishAuth(answer.searchParams)
    const { client, connected } = open()
    await connected
    onTestFinished(() => client.close())
    return client
  }

  const askUsage = (client: Client, parameters: Record<string, unknown> = { meter: 'fee_wei' }) =>
    client.callTool({ name: 'query_usage', arguments: parameters })

  it.each(modes)('discovers the server and reads usage in revision $revision', async (row) => {
    const memory = createMemory()
    const client = await connect(memory, row.mode)
    expect(client.getNegotiatedProtocolVersion()).toBe(row.revision)
    expect(memory.kept.client?.client_id).toMatch(/^dyn_/)
    const { tools } = await client.listTools()
    expect(tools).toMatchObject([
      {
        name: 'query_usage',
        annotations: { readOnlyHint: true },
        inputSchema: { required: ['meter'], additionalProperties: false },
      },
    ])
    const authorization = `Bearer ${memory.kept.tokens?.access_token}`
    const usage = `${edge}/api/v1/apps/${app.clientId}/usage?meter=fee_wei`
    const response = await started.customFetch(usage, { headers: { authorization } })
    const { structuredContent, isError } = await askUsage(client)
    expect([isError, structuredContent]).toEqual([undefined, await response.json()])
  })

  it('gets the error of a failed call', async () => {
    const client = await connect(createMemory())
    const { isError, content } = await askUsage(client, { meter: 'wishes' })
    const [first] = content
    expect(isError).toBe(true)
    expect(first?.type === 'text' && JSON.parse(first.text)).toMatchObject({
      code: 'request_invalid',
      detail: expect.stringContaining('meter is not a catalog meter'),
    })
    await expect(client.callTool({ name: 'wish' })).rejects.toMatchObject({ code: -32_602 })
  })

  it('refreshes its login when the app allows it', async () => {
    await started.setRefreshable(app, true)
    onTestFinished(async () => void (await started.setRefreshable(app, false)))
    const { clock } = started.real.core
    const at = clock.now()
    onTestFinished(() => clock.set(at))
    const memory = createMemory()
    const client = await connect(memory)
    const before = memory.kept.tokens?.access_token
    clock.advance(86_400_000)
    expect((await askUsage(client)).isError).toBeUndefined()
    expect(memory.kept.tokens?.access_token).not.toBe(before)
  })

  it('uses an id registered in advance', async () => {
    const { token } = await started.newToken(app)
    const response = await started.customFetch(`${edge}/api/v1/oidc/register`, {
      method: 'POST',
      headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
      body: JSON.stringify({ redirect_uris: [callback] }),
    })
    const { client_id } = asRecord(await response.json())
    const client = await connect(createMemory({ client_id: String(client_id) }))
    expect((await askUsage(client)).isError).toBeUndefined()
  })
})

const message = (method: string, params: object = {}) => ({ jsonrpc: '2.0', id: 1, method, params })
const ping = message('ping')
const initialize = (protocolVersion: string) =>
  message('initialize', {
    protocolVersion,
    capabilities: {},
    clientInfo: { name: 'x', version: '1' },
  })
const call = callOf(new URLSearchParams({ meter: 'fee_wei' }))

describe('MCP endpoint', () => {
  interface Sending {
    readonly headers?: Readonly<Record<string, string>>
    readonly text?: string | Uint8Array<ArrayBuffer>
    readonly id?: string
    readonly method?: string
  }

  async function send(
    json: object | undefined,
    { headers, text, id = app.clientId, method = 'POST' }: Sending = {},
  ) {
    const { accept } = mcpHeaders
    const usual = { authorization: app.userToken, accept, 'content-type': 'application/json' }
    const body = text ?? (json && JSON.stringify(json))
    const response = await fetch(started.real.edgeUrl + pathOf(id), {
      method,
      headers: { ...usual, ...headers },
      ...(body === undefined ? {} : { body }),
    })
    const answer = await response.text()
    // The answer may also be a single event.
    const [, data = answer] = /^data: (.*)$/m.exec(answer) ?? []
    const isJson = data.startsWith('{')
    return {
      status: response.status,
      headers: response.headers,
      text: answer,
      body: isJson ? asRecord(JSON.parse(data)) : {},
    }
  }

  const errorOf = ({ body }: { readonly body: Record<string, unknown> }) =>
    asRecord(body['error'] ?? {})['code']

  it.each(['GET', 'DELETE', 'PUT', 'PATCH'])('rejects %s', async (method) => {
    const { status, headers } = await send(undefined, { method })
    expect([status, headers.get('allow')]).toEqual([405, 'POST'])
  })

  it("returns 401 to any credential but a user's JWT, before reading the message", async () => {
    const refused = [
      app.apiKey,
      app.basic,
      app.machineToken,
      `Bearer sk_${'A'.repeat(49)}`,
      'Bearer eyJhbGciOiJub25lIn0.e30.x',
    ]
    for (const authorization of refused)
      for (const text of ['{', '[]', JSON.stringify(initialize('2025-11-25'))]) {
        const { status, headers } = await send(undefined, { headers: { authorization }, text })
        expect(status).toBe(401)
        expect(headers.get('www-authenticate')).toContain(
          `resource_metadata="${edge}/.well-known/oauth-protected-resource${pathOf(app.clientId)}"`,
        )
      }
  })

  it("returns 404 to another app's user, before reading the message", async () => {
    for (const id of [other.clientId, app.m2mClientId])
      expect((await send(undefined, { id, text: '{' })).status).toBe(404)
    expect((await send(ping, { id: '' })).status).toBe(400)
  })

  it('answers only pages of its list', async () => {
    const mine = await send(ping, { headers: { origin: page } })
    expect([mine.status, mine.headers.get('access-control-allow-origin')]).toEqual([200, page])
    for (const origin of ['https://evil.example', `${page}.evil.example`, 'null', edge]) {
      const theirs = await send(ping, { headers: { origin, authorization: 'Bearer x' } })
      expect([theirs.status, theirs.body['error']]).toEqual([403, 'origin_forbidden'])
    }
    const { headers } = await send(undefined, { method: 'OPTIONS', headers: { origin: page } })
    expect(headers.get('access-control-allow-headers')).toBe(
      'Authorization, Content-Type, Accept, MCP-Protocol-Version, Mcp-Method, Mcp-Name',
    )
  })

  it.each([
    ['text that is not JSON', '{', -32_700],
    ['text that is not UTF-8', new Uint8Array([0x7b, 0xff, 0x7d]), -32_700],
    ['a batch', JSON.stringify([ping]), -32_600],
    ['a number', '7', -32_600],
    ['an empty body', '', -32_600],
    ['an object that is not a message', '{"jsonrpc":"1.0"}', -32_600],
  ])('refuses %s', async (_, text, code) => {
    const answer = await send(undefined, { text })
    expect([answer.status, errorOf(answer), answer.body['id']]).toEqual([400, code, null])
  })

  it('rejects oversized bodies and other types', async () => {
    expect((await send(undefined, { text: ' '.repeat(1_048_577) })).status).toBe(413)
    const headers = { 'content-type': 'text/plain' }
    expect((await send(ping, { headers })).status).toBe(415)
    expect((await send(ping, { headers: { accept: 'application/json' } })).status).toBe(406)
  })

  it('survives deep nesting', async () => {
    const deep = '['.repeat(100_000) + ']'.repeat(100_000)
    const text = JSON.stringify(message('tools/call', { name: 'query_usage', arguments: { x: 0 } }))
    const { body } = await send(undefined, { text: text.replace('"x":0', `"x":${deep}`) })
    expect(body['result']).toMatchObject({ isError: true })
    const sent = JSON.stringify(initialize('2025-11-25')).replace(
      '{}',
      `{"experimental":{"x":${deep}}}`,
    )
    expect((await send(undefined, { text: sent })).status).toBeLessThan(500)
  })

  it.each([
    ['2025-06-18', '2025-06-18'],
    ['2025-11-25', '2025-11-25'],
    ['2025-03-26', '2025-11-25'],
    ['2099-01-01', '2025-11-25'],
  ])('negotiates: a client that initializes with %s gets %s', async (wish, protocolVersion) => {
    const { body } = await send(initialize(wish))
    expect(body['result']).toMatchObject({ protocolVersion, capabilities: { tools: {} } })
  })

  it('rejects unsupported revisions and headers that contradict the message', async () => {
    for (const version of ['2025-03-26', '2099-01-01', 'x']) {
      const headers = { 'mcp-protocol-version': version }
      expect((await send(ping, { headers })).status).toBe(400)
    }
    const faults: readonly (readonly [string, number])[] = [
      ['mcp-protocol-version', -32_020],
      ['mcp-method', -32_020],
      ['mcp-name', -32_020],
    ]
    for (const [name, code] of faults)
      for (const value of ['', '2025-11-25']) {
        const answer = await send(call, { headers: { ...mcpHeaders, [name]: value } })
        expect([name, answer.status, errorOf(answer)]).toEqual([name, 400, code])
      }
    const future = JSON.stringify(call).replace('2026-07-28', '2099-01-01')
    const headers = { ...mcpHeaders, 'mcp-protocol-version': '2099-01-01' }
    const answer = await send(undefined, { headers, text: future })
    expect([answer.status, errorOf(answer)]).toEqual([400, -32_022])
  })

  it('accepts notifications without an answer', async () => {
    for (const method of ['notifications/initialized', 'notifications/cancelled']) {
      const params = { requestId: 1 }
      const { status, text } = await send({ jsonrpc: '2.0', method, params })
      expect([status, text]).toEqual([202, ''])
    }
  })

  it('supports no other method and opens no stream', async () => {
    expect(errorOf(await send(message('resources/list')))).toBe(-32_601)
    const { _meta } = call.params
    const listen = message('subscriptions/listen', {
      _meta,
      notifications: { toolsListChanged: true },
    })
    const headers = { ...mcpHeaders, 'mcp-method': 'subscriptions/listen' }
    const { status, text } = await send(listen, { headers })
    expect([status, text]).toEqual([200, expect.stringContaining('"resultType":"complete"')])
  })
})

describe('MCP endpoint when core fails', () => {
  it('returns 503 without internal details and counts each message for the limit', async () => {
    const most = 1_000
    const limits = {
      perAddress: most,
      perClient: most,
      loginPerAddress: most,
      failuresPerAddress: most,
      failuresPerClient: most,
    }
    const harness = await startHarness({
      now: () => new Date('2026-03-10T12:00:30Z'),
      edge: { limits },
      builderEdge: { port: 0, url: edge, corsOrigins: [], perAddress: 2 },
    })
    onTestFinished(() => harness.stop())
    const authorization = 'Bearer a.b.c'
    const send = () =>
      harness.askEdge('POST', pathOf(clientId), { authorization, json: call, headers: mcpHeaders })
    harness.core.refuse('queryMeter', 'INTERNAL', 'a secret of ours')
    const { status, text } = await send()
    expect([status, text]).toEqual([
      200,
      expect.stringContaining('it is logged under the correlation id'),
    ])
    expect(text).not.toContain('a secret of ours')
    harness.core.refuse('checkCaller', 'UNAVAILABLE')
    expect((await send()).status).toBe(503)
    expect((await send()).status).toBe(429)
  })
})
