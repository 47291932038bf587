import { randomUUID } from 'node:crypto'
import { credentials } from '@grpc/grpc-js'
import { unary } from '../../core/lib/grpc.ts'
import { GrantType, TokenType } from '../../proto/oauth.ts'
import { serviceTokenHeader } from '../../proto/headers.ts'
import { silentLog } from '../../core/lib/log.ts'
import { createMetrics } from '../../core/lib/metrics.ts'
import type { CoreDeps } from '../../core/app.ts'
import type { OutsideParts } from '../../core/modules.ts'
import type { GatewayConfig } from '../../gateway/config.ts'
import type { CoreClient } from '../../deploy/cli/client.ts'
import { startGateway } from '../../gateway/server.ts'
import * as accounts from '../../proto/gen/ts-proto/tollgate/identity/v1/accounts.ts'
import * as identity from '../../proto/gen/ts-proto/tollgate/identity/v1/identity.ts'
import { type TestCore, basicOf, bearerOf, serviceToken, startTestCore } from '../core/support.ts'
import { registerSecret } from '../support/run/secrecy.ts'
import { asRecord, publicUrl, quietEdge } from './support.ts'

export const password = registerSecret('a long enough password')

/** An app with all its callers' credentials. */
export interface RealApp {
  readonly clientId: string
  readonly m2mClientId: string
  readonly basic: string
  readonly machineToken: string
  readonly userToken: string
  readonly apiKey: string
  /** Headers of its owner's browser. */
  readonly session: Readonly<Record<string, string>>
}

export interface RealPerson {
  readonly accountId: string
  readonly email: string
  /** Headers of the person's browser. */
  readonly session: Readonly<Record<string, string>>
}

/** Starts a gateway with a real core. */
export async function startReal(
  env: Readonly<Record<string, string>> = {},
  parts: OutsideParts & Pick<CoreDeps, 'upkeepMs'> = {},
  { deadlineMs = 10_000, ...settings }: Partial<GatewayConfig> & { deadlineMs?: number } = {},
) {
  const core = await startTestCore(env, parts)
  const gateway = await startGateway(
    {
      host: '127.0.0.1',
      platformPort: 0,
      builderPort: 0,
      publicUrl,
      tokenAlg: 'RS256',
      core: { target: core.core.target, token: serviceToken, deadlineMs },
      edge: {
        ...quietEdge,
        ingestSecret: registerSecret('ingest-secret-of-at-least-32-characters'),
      },
      ...settings,
    },
    {
      log: silentLog(),
      metrics: createMetrics('gateway'),
      hasSimulatedProcessor: env['PAYMENT_PROCESSOR'] === 'simulated',
    },
  )
  const insecure = credentials.createInsecure()
  const people = new accounts.AccountServiceClient(core.core.target, insecure)
  const apps = new identity.AppServiceClient(core.core.target, insecure)
  const operator = { deadlineMs: 10_000, headers: { [serviceTokenHeader]: serviceToken } }

  async function newSession(email: string): Promise<Record<string, string>> {
    const { sessionToken, session } = await unary(people.logIn.bind(people))(
      { email, password },
      operator,
    )
    registerSecret(sessionToken)
    return {
      cookie: `__Host-tollgate_session=${sessionToken}`,
      origin: publicUrl,
      'x-csrf-token': session?.csrfToken ?? '',
    }
  }

  async function newApp(name: string): Promise<RealApp> {
    const email = `${name}@example.com`
    const created = await unary(apps.createApp.bind(apps))(
      identity.CreateAppRequest.fromPartial({
        name,
        ownerEmail: email,
        ownerPassword: password,
        isCustomer: true,
      }),
      operator,
    )
    const basic = basicOf(created.m2mClientId, created.m2mClientSecret)
    const m2m = core.as(basic)
    await m2m.upsertUser({ clientId: created.clientId, externalUserId: 'ada' })
    const ada = { clientId: created.clientId, externalUserId: 'ada' }
    return {
      clientId: created.clientId,
      m2mClientId: created.m2mClientId,
      basic,
      machineToken: bearerOf((await m2m.issueMachineToken()).accessToken),
      userToken: bearerOf((await m2m.mintUserToken(ada)).accessToken),
      apiKey: bearerOf((await m2m.createKey(ada)).apiKey),
      session: await newSession(email),
    }
  }

  /** Creates a person who is logged in and has no app. */
  async function newPerson(isPlatformAdmin = false): Promise<RealPerson> {
    const email = `${randomUUID()}@example.com`
    const { account } = await unary(people.createAccount.bind(people))(
      accounts.CreateAccountRequest.fromPartial({ email, password, isPlatformAdmin }),
      operator,
    )
    return { accountId: account?.id ?? '', email, session: await newSession(email) }
  }

  async function stop(): Promise<void> {
    people.close()
    apps.close()
    await gateway.stop()
    await core.stop()
  }

  return {
    core,
    url: gateway.platformUrl,
    builderUrl: gateway.builderUrl,
    edgeUrl: gateway.edgeUrl ?? '',
    newApp,
    newPerson,
    stop,
  }
}

export type Real = Awaited<ReturnType<typeof startReal>>
export type { TestCore }

export interface Operation {
  readonly method: string
  readonly path: string
  readonly parameters: readonly Record<string, unknown>[]
  readonly body: Record<string, unknown> | null
  readonly form: boolean
  readonly isBodyRequired: boolean
  /** The documented statuses. */
  readonly statuses: readonly string[]
}

/** Returns the route table from the internal document. */
export async function operationsOf(url: string, session: Readonly<Record<string, string>>) {
  const document = asRecord(
    await (await fetch(`${url}/api/v1/internal/openapi.json`, { headers: { ...session } })).json(),
  )
  const operations = Object.entries(asRecord(document['paths'])).flatMap(([path, item]) =>
    Object.entries(asRecord(item)).map(([method, value]) =>
      toOperation({ method: method.toUpperCase(), path }, asRecord(value)),
    ),
  )
  return { document, operations }
}

function toOperation(
  at: { method: string; path: string },
  operation: Record<string, unknown>,
): Operation {
  const requestBody = asRecord(operation['requestBody'] ?? {})
  const content = asRecord(requestBody['content'] ?? {})
  const [media] = Object.values(content)
  const parameters = Array.isArray(operation['parameters'])
    ? operation['parameters'].map(asRecord)
    : []
  const body = media === undefined ? null : asRecord(asRecord(media)['schema'] ?? {})
  return {
    ...at,
    parameters,
    body,
    form: Object.keys(content)[0] === 'application/x-www-form-urlencoded',
    isBodyRequired: requestBody['required'] === true,
    statuses: Object.keys(asRecord(operation['responses'])),
  }
}

const known: Readonly<Record<string, unknown>> = {
  externalUserId: 'ada',
  email: 'ada@example.com',
  amountUsdMicros: '1000',
  grant_type: 'client_credentials',
  subject_token_type: TokenType.accessToken,
  name: 'A name',
  type: 'create_signed_ticket',
  origin: 'https://page.example',
  role: 'viewer',
  scope: 'sign:job',
  keyId: 'k-1',
  id: '0192f3a0-0000-7000-8000-000000000000',
  color: '#112233',
}

const knownExchange = { ...known, grant_type: GrantType.tokenExchange }

/** Returns a body that is valid by names and types. */
export function sample(schema: Record<string, unknown>): unknown {
  if (schema['type'] === 'array') return []
  if (schema['type'] === 'boolean') return false
  if (schema['type'] === 'integer' || schema['type'] === 'number') return 1
  if (Array.isArray(schema['enum'])) return schema['enum'][0]
  if (schema['type'] !== 'object') return 'text'
  const needed = Array.isArray(schema['required']) ? schema['required'].map(String) : []
  const values: Readonly<Record<string, unknown>> = needed.includes('subject_token')
    ? knownExchange
    : known
  return Object.fromEntries(
    Object.entries(asRecord(schema['properties'] ?? {}))
      .filter(([name]) => needed.includes(name))
      .map(([name, value]) => [name, values[name] ?? sample(asRecord(value))]),
  )
}

/** Creates an app in billing mode merchant, whose account is not connected. */
export async function newSellingApp(
  { real, operator }: { readonly real: Real; readonly operator: Pick<CoreClient, 'billing'> },
  name: string,
): Promise<RealApp> {
  const app = await real.newApp(name)
  const { clientId } = app
  await operator.billing.updateBillingSettings({ clientId, billingMode: 'merchant' })
  return app
}

/** Returns the operation's path and query, with all required parameters. */
export function addressFor(
  { path, parameters }: Operation,
  values: Readonly<Record<string, string>>,
): string {
  const filled = path.replace(/\{([^}]+)\}/g, (_, name: string) =>
    encodeURIComponent(values[name] ?? String(known[name] ?? 'unknown')),
  )
  const query = parameters
    .filter((each) => each['in'] === 'query' && each['required'] === true)
    .map(({ name }) => [String(name), String(known[String(name)] ?? 'text')])
  return query.length === 0
    ? filled
    : `${filled}?${new URLSearchParams(Object.fromEntries(query)).toString()}`
}

export function bodyFor(operation: Operation): RequestInit {
  if (operation.body === null) return {}
  const body = sample(operation.body)
  if (!operation.form)
    return { body: JSON.stringify(body), headers: { 'content-type': 'application/json' } }
  const fields = Object.entries(asRecord(body)).map(([name, value]) => [name, String(value)])
  return {
    body: new URLSearchParams(Object.fromEntries(fields)).toString(),
    headers: { 'content-type': 'application/x-www-form-urlencoded' },
  }
}
