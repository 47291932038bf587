import { randomUUID } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import * as fc from 'fast-check'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { basic, connectCore } from '../../deploy/cli/client.ts'
import { findServiceToken } from '../../deploy/local/data-dir.ts'
import { hostileText, spoiltJson } from '../support/web/hostile.ts'
import { type TestService, startTestService } from '../support/deployment/service.ts'
import { testSeed } from '../support/run/sizes.ts'
import { signedTicket } from '../support/usage/signed-ticket.ts'

const runs = (numRuns: number) => ({ seed: testSeed, numRuns })

let running: TestService
let apiKey: string
beforeAll(async () => {
  running = await startTestService({ LOG_LEVEL: 'info' })
  await rest({ method: 'POST', path: `${app()}/users`, body: '{"externalUserId":"ada"}' })
  const created: { apiKey: string } = JSON.parse(
    (await rest({ method: 'POST', path: `${app()}/users/ada/keys`, body: '{}' })).text,
  )
  apiKey = created.apiKey
})
afterAll(() => running?.stop())

const quickstart = () => running.service.quickstart
const app = (): string => `/api/v1/apps/${quickstart().clientId}`

interface Ask {
  readonly method: string
  readonly path: string
  readonly body?: string
  readonly headers?: Record<string, string>
}

async function rest({ method, path, body, headers }: Ask) {
  const { platformUrl, m2mClientId, m2mClientSecret } = quickstart()
  const response = await fetch(platformUrl + path, {
    method,
    body: body ?? null,
    headers: {
      authorization: basic(m2mClientId, m2mClientSecret),
      ...(body !== undefined && { 'content-type': 'application/json' }),
      ...headers,
    },
  })
  // An event stream does not end until its reader closes it.
  if (response.headers.get('content-type')?.startsWith('text/event-stream'))
    await response.body?.cancel()
  return { status: response.status, text: response.bodyUsed ? '' : await response.text() }
}

async function push(url: string, body: string | Uint8Array<ArrayBuffer>) {
  const response = await fetch(url, {
    method: 'POST',
    body,
    headers: { 'x-webhook-secret': quickstart().webhookSecret, 'content-type': 'application/json' },
  })
  return { status: response.status, text: await response.text() }
}

const webhookBody = () => ({
  headers: { Authorization: [`Bearer ${apiKey}`], 'X-Request-Id': ['1'] },
  state: {
    StateID: '9f86d081',
    App: 'acme/echo',
    Type: 'live',
    PMSessionID: '0x2b1f',
    LastUpdate: new Date().toISOString(),
    OrchestratorAddress: '0x5be4',
    SenderNonce: 1,
    Balance: '6000/7',
    InitialPricePerUnit: 12000,
    InitialPixelsPerUnit: 1,
    AuthID: '',
    AuthExpiry: 0,
    SequenceNumber: 0,
  },
})

// Placeholder for a unique id.
const newId = '<new id>'

const event = (id: string) => signedTicket({ id, authId: `${quickstart().clientId}:ada` })

/**
 * Returns what is wrong with a webhook answer by docs/signer-answers.md ("Answer"); null if it is
 * valid.
 */
function faultOf({ status, text }: { status: number; text: string }): string | null {
  if (status !== 200)
    return [400, 401, 404, 405].includes(status) ? null : `HTTP ${status}: ${text}`
  const {
    status: code,
    auth_id: authId,
    expiry = 0,
    reason = '',
  }: Record<string, unknown> = JSON.parse(text)
  const now = Date.now() / 1000
  const bytes = typeof authId === 'string' ? Buffer.byteLength(authId) : 0
  const holds = {
    text: text.startsWith('{') && /"status":\d{3}[,}]/.test(text) && typeof reason === 'string',
    status:
      typeof code === 'number' &&
      (code === 200 || (code >= 400 && code <= 599)) &&
      ![480, 481, 482].includes(code),
    expiry:
      typeof expiry === 'number' &&
      Number.isInteger(expiry) &&
      (expiry === 0 || (expiry >= now - 2 && expiry <= now + 60)),
    identity: code !== 200 || (bytes > 0 && bytes <= 256),
  }
  const broken = Object.entries(holds)
    .filter(([, isSo]) => !isSo)
    .map(([law]) => law)
  return broken.length === 0 ? null : `${broken.join(', ')}: ${text}`
}

const errors = async (): Promise<string[]> =>
  (await readFile(running.service.logFile, 'utf8'))
    .split('\n')
    .filter((line) => /"level":"(error|fatal)"/.test(line))
    .slice(0, 5)

/** Returns the number of events received in direct mode, whatever their outcome. */
async function counted(): Promise<bigint> {
  const core = connectCore({
    target: quickstart().coreTarget,
    token: (await findServiceToken(running.service.dataDir)) ?? '',
  })
  try {
    const direct = (await core.metering.getMeteringStatus({})).streams.filter(
      ({ source }) => source === 'direct',
    )
    return direct
      .flatMap(({ tickets, duplicates, ignored, quarantined }) => [
        tickets,
        duplicates,
        ignored,
        quarantined,
      ])
      .reduce((sum, count) => sum + BigInt(count), 0n)
  } finally {
    core.close()
  }
}

const healthy = async (): Promise<number> => (await fetch(`${quickstart().adminUrl}/readyz`)).status

describe(`hostile input, TEST_SEED=${testSeed}`, () => {
  it('gets a decision or a refusal at both addresses of the webhook', async () => {
    const body = fc.oneof(
      { weight: 9, arbitrary: spoiltJson(webhookBody()) },
      { weight: 1, arbitrary: hostileText },
    )
    const { sidecarUrl, platformUrl } = quickstart()
    const good = await push(`${sidecarUrl}/authorize`, JSON.stringify(webhookBody()))
    expect(JSON.parse(good.text)).toMatchObject({
      status: 200,
      auth_id: `${quickstart().clientId}:ada`,
    })
    await fc.assert(
      fc.asyncProperty(body, fc.boolean(), async (text, embedded) => {
        expect(
          faultOf(
            await push(
              embedded ? `${platformUrl}/webhooks/remote-signer` : `${sidecarUrl}/authorize`,
              text,
            ),
          ),
        ).toBeNull()
      }),
      runs(500),
    )
    expect([await healthy(), await errors()]).toEqual([200, []])
  }, 60_000)

  it('is counted for each event, and valid events are still accepted', async () => {
    const pushed = fc.array(spoiltJson(event(newId)), { minLength: 1, maxLength: 20 })
    let total = 0n
    await fc.assert(
      fc.asyncProperty(pushed, async (texts) => {
        // Blank lines do not count as events.
        const lines = texts
          .filter((text) => text.trim() !== '')
          .map((text) => text.replace(newId, randomUUID()))
        const answer = await push(`${quickstart().sidecarUrl}/events`, lines.join('\n'))
        const { accepted = 0 }: Record<string, number> =
          answer.status === 202 ? JSON.parse(answer.text) : {}
        expect([answer.status, accepted]).toEqual(
          lines.length === 0 ? [400, 0] : [202, lines.length],
        )
        total += BigInt(lines.length)
      }),
      runs(300),
    )
    const good = await push(
      `${quickstart().sidecarUrl}/events`,
      JSON.stringify(event(randomUUID())),
    )
    expect(JSON.parse(good.text)).toEqual({ accepted: 1 })
    await expect.poll(counted, { timeout: 20_000 }).toBe(total + 1n)
    expect([await healthy(), await errors()]).toEqual([200, []])
  }, 60_000)

  it('is refused or kept when sent as raw bytes', async () => {
    await fc.assert(
      fc.asyncProperty(fc.uint8Array({ minLength: 1, maxLength: 200 }), async (bytes) => {
        const events = await push(`${quickstart().sidecarUrl}/events`, Uint8Array.from(bytes))
        expect([202, 400, 413]).toContain(events.status)
        expect(
          faultOf(await push(`${quickstart().sidecarUrl}/authorize`, Uint8Array.from(bytes))),
        ).toBeNull()
      }),
      runs(150),
    )
    expect([await healthy(), await errors()]).toEqual([200, []])
  }, 60_000)

  it('gets no 5xx from any route of the OpenAPI document', async () => {
    const document: { paths: Record<string, object> } = JSON.parse(
      (await rest({ method: 'GET', path: '/api/v1/openapi.json' })).text,
    )
    const routes = Object.entries(document.paths).flatMap(([path, operations]) =>
      Object.keys(operations).map((method) => ({ method: method.toUpperCase(), path })),
    )
    const body = spoiltJson({
      externalUserId: 'ada',
      email: 'a@b.example',
      status: 'active',
      label: 'x',
      scope: 'sign:job',
      amountUsdMicros: '5',
      source: 'promo',
      featureKey: 'live',
      grant_type: 'client_credentials',
      apiKey,
    })
    const name = fc.oneof(fc.constant('ada'), hostileText)
    const query = fc.dictionary(
      fc.constantFrom(
        'externalUserId',
        'status',
        'limit',
        'cursor',
        'keyId',
        'groupBy',
        'startDate',
        'endDate',
        'userId',
      ),
      fc.oneof(
        fc.constantFrom('ada', 'active', 'user', '1', '2026-09-14'),
        hostileText.map((text) => text.slice(0, 300)),
      ),
      { maxKeys: 3 },
    )
    const key = fc.option(fc.stringMatching(/^[\x20-\x7e]{0,40}$/))
    await fc.assert(
      fc.asyncProperty(
        fc.constantFrom(...routes),
        fc.record({ name, query, body, key }),
        async ({ method, path }, input) => {
          const at = path
            .replace('{clientId}', quickstart().clientId)
            .replace(
              '{externalUserId}',
              encodeURIComponent(input.name.toWellFormed().slice(0, 300)),
            )
          const search = new URLSearchParams(
            Object.entries(input.query).map(([key, value]): [string, string] => [
              key,
              value.toWellFormed(),
            ]),
          )
          const answer = await rest({
            method,
            path: `${at}?${search}`,
            ...(method !== 'GET' && { body: input.body }),
            ...(input.key !== null && { headers: { 'idempotency-key': input.key } }),
          })
          expect(answer.status < 500 ? null : answer.text).toBeNull()
        },
      ),
      runs(700),
    )
    expect([await healthy(), await errors()]).toEqual([200, []])
  }, 60_000)
})
