import { envelope } from '../../../core/metering/harness.ts'
import { randomUUID } from 'node:crypto'
import { type Grants, sessionOf } from '../oidc/support.ts'
import { type PlanTerms, freeTerms } from '../../../../core/plans/offers/plan.ts'
import { insertPlan } from '../../../../core/plans/offers/store.ts'
import { usdAttos } from '../../../../core/lib/money.ts'
import { appId } from '../../../../core/shared/ids.ts'
import { asRecord } from '../../support.ts'
import { until } from '../../../support/waiting.ts'
import { tellWallet } from './wallet-story.ts'
import { decisionOf } from '../../../support/usage/decisions.ts'

type Headers = Readonly<Record<string, string>>

/** One call of the story: all values that an example cannot contain in advance. */
export interface Step {
  readonly operation: string
  readonly status: number
  readonly headers?: Headers
  readonly query?: Readonly<Record<string, string>>
  readonly path?: Readonly<Record<string, string>>
  /** Members of the example body that need real values. */
  readonly real?: Readonly<Record<string, string | number>>
}

export interface StoryStep {
  readonly step: Step
  readonly status: number
  readonly answer: unknown
}

export type Bodies = (operation: string) => object | undefined

const apps = '/api/v1/apps/{clientId}'
const user = `${apps}/users/{externalUserId}`
const oidc = '/api/v1/oidc'
const form = 'application/x-www-form-urlencoded'

/** Calls every operation of the document once, with its examples as bodies. Returns the answers. */
export async function tellStory(
  grants: Grants,
  { bodies, forms }: { bodies: Bodies; forms: ReadonlySet<string> },
) {
  const { app, real } = grants
  const steps: StoryStep[] = []
  const m2m = { authorization: app.basic }
  const owner = app.session
  const grace = { externalUserId: 'grace' }
  const noted = new Map<string, string>()
  const note = (name: string): string => noted.get(name) ?? 'missing'

  async function step(request: Step): Promise<Record<string, unknown>> {
    const { operation, status, headers = m2m, query, path, real: realBody } = request
    const [method = '', template = ''] = operation.split(' ')
    const values: Record<string, string> = {
      clientId: app.clientId,
      externalUserId: 'ada',
      ...path,
    }
    const address = template.replace(/\{(\w+)\}/g, (_, name: string) => values[name] ?? name)
    const example = bodies(operation)
    const body = example && { ...example, ...realBody }
    const isForm = forms.has(operation)
    const response = await fetch(
      `${real.url}${address}${query ? `?${new URLSearchParams(query)}` : ''}`,
      {
        method: method.toUpperCase(),
        headers: {
          ...headers,
          ...(body && { 'content-type': isForm ? form : 'application/json' }),
        },
        ...(body && {
          body: isForm
            ? new URLSearchParams(
                Object.fromEntries(
                  Object.entries(body).map(([name, value]) => [name, String(value)]),
                ),
              )
            : JSON.stringify(body),
        }),
      },
    )
    const answer: unknown = JSON.parse(await response.text())
    if (response.status !== status)
      throw new Error(`${operation}: ${response.status} ${JSON.stringify(answer)}`)
    steps.push({ step: request, status: response.status, answer })
    return Array.isArray(answer) ? {} : asRecord(answer)
  }

  const secret = {
    client_id: app.m2mClientId,
    client_secret: Buffer.from(app.basic.slice(6), 'base64').toString().split(':')[1] ?? '',
  }
  await step({ operation: 'get /health', status: 200, headers: {} })
  for (const path of [
    '/api/v1/openapi.json',
    '/api/v1/sidecar/openapi.json',
    `${oidc}/.well-known/openid-configuration`,
    '/.well-known/openid-configuration',
    '/.well-known/oauth-authorization-server/api/v1/oidc',
    `${oidc}/jwks`,
  ]) {
    await step({ operation: `get ${path}`, status: 200 })
  }
  await step({ operation: 'get /api/v1/session', status: 200, headers: owner })
  await step({ operation: 'get /api/v1/subscriptions', status: 200, headers: owner })

  await step({ operation: `post ${apps}/users`, status: 201 })
  await step({ operation: `post ${apps}/users`, status: 200 })
  await step({ operation: `put ${apps}/users`, status: 200 })
  await step({ operation: `get ${apps}/users`, status: 200 })
  const token = String(
    (await step({ operation: `post ${user}/token`, status: 200 }))['access_token'],
  )
  const key = await step({ operation: `post ${user}/keys`, status: 201 })
  await step({
    operation: `post ${apps}/auth/api-key/token`,
    status: 200,
    headers: { authorization: `Bearer ${key['apiKey']}` },
  })
  await step({
    operation: 'get /api/v1/auth/validate',
    status: 200,
    headers: { authorization: `Bearer ${key['apiKey']}` },
  })
  await step({ operation: `get ${user}/keys`, status: 200 })
  for (const method of ['put', 'get', 'delete']) {
    const path = { keyId: String(key['keyId']) }
    await step({ operation: `${method} ${user}/limits`, status: 200 })
    await step({ operation: `${method} ${user}/keys/{keyId}/limits`, status: 200, path })
  }
  await step({
    operation: `delete ${user}/keys`,
    status: 200,
    query: { keyId: String(key['keyId']) },
  })
  await step({ operation: `post ${user}/allowances`, status: 200 })
  for (const name of ['allowances', 'credits'])
    await step({ operation: `get ${user}/${name}`, status: 200 })
  const studio = await newPlan(grants, { ...freeTerms, included: usdAttos(7n * 10n ** 18n) })
  await step({
    operation: `post ${user}/subscription/change`,
    status: 200,
    real: { planId: studio },
  })
  await step({ operation: `delete ${user}/subscription`, status: 200 })
  for (const name of ['subscription', 'subscriptions'])
    await step({ operation: `get ${user}/${name}`, status: 200 })
  await step({ operation: `delete ${user}/subscription/pending-change`, status: 200 })
  for (const base of ['/api/v1/builder/apps/{clientId}', apps]) {
    await step({ operation: `get ${base}/usage`, status: 200, query: { groupBy: 'user' } })
    await step({
      operation: `get ${base}/usage/balance`,
      status: 200,
      query: { externalUserId: 'ada' },
    })
  }
  for (const name of ['requests', 'loss'])
    await step({ operation: `get /api/v1/builder/apps/{clientId}/usage/${name}`, status: 200 })
  const own = { authorization: `Bearer ${token}` }
  await step({ operation: 'get /api/v1/user/usage/requests', status: 200, headers: own })
  await step({ operation: 'get /api/v1/user/usage', status: 200, headers: own })
  await step({ operation: 'get /api/v1/user/usage/balance', status: 200, headers: own })

  await step({ operation: `post ${oidc}/token`, status: 200, headers: {}, real: secret })
  for (const path of ['device/auth', 'device_authorization']) {
    const started = await step({
      operation: `post ${oidc}/${path}`,
      status: 200,
      headers: {},
      real: { client_id: app.clientId },
    })
    noted
      .set('userCode', String(started['user_code']))
      .set('deviceCode', String(started['device_code']))
  }
  await grants.devices.decide(sessionOf(app), note('userCode'), 'approve')
  const login = await grants.token({
    grant_type: 'urn:ietf:params:oauth:grant-type:device_code',
    device_code: note('deviceCode'),
    client_id: app.clientId,
  })
  const inForm = { access_token: String(login.body['access_token']) }
  const loggedIn = { authorization: `Bearer ${inForm.access_token}` }
  for (const path of ['me', 'userinfo']) {
    await step({ operation: `get ${oidc}/${path}`, status: 200, headers: loggedIn })
    await step({ operation: `post ${oidc}/${path}`, status: 200, headers: {}, real: inForm })
  }
  await step({
    operation: 'post /api/signer/device/exchange',
    status: 200,
    headers: {},
    real: { deviceToken: String(login.body['access_token']), clientId: app.clientId },
  })
  await step({
    operation: `post ${apps}/oidc/token`,
    status: 200,
    headers: {},
    real: { subject_token: token },
  })
  await grants.token(
    {
      grant_type: 'urn:ietf:params:oauth:grant-type:token-exchange',
      subject_token: token,
      subject_token_type: 'urn:ietf:params:oauth:token-type:access_token',
    },
    app.basic,
  )
  const listed = await step({ operation: `get ${user}/signer-sessions`, status: 200 })
  const [session] = Array.isArray(listed['sessions']) ? listed['sessions'].map(asRecord) : []
  await step({
    operation: `delete ${user}/signer-sessions`,
    status: 200,
    query: { sessionId: String(session?.['sessionId']) },
  })
  for (const path of ['introspection', 'revocation']) {
    await step({
      operation: `post ${oidc}/token/${path}`,
      status: 200,
      headers: {},
      real: { ...secret, token },
    })
  }
  await step({ operation: `delete ${apps}/users`, status: 200, query: grace })

  const created = await step({ operation: 'post /api/v1/apps', status: 201, headers: owner })
  const mine = { clientId: String(created['clientId']) }
  const managed = { headers: owner, path: mine }
  await step({ operation: 'get /api/v1/apps', status: 200, headers: owner })
  await step({ operation: `put ${apps}`, status: 200, ...managed })
  await step({ operation: `get ${apps}`, status: 200, ...managed })
  const colleague = await real.newPerson()
  const invite = (email: string, status = 202) =>
    step({ operation: `put ${apps}/admins`, status, ...managed, real: { email } })
  const answer = async (operation: string): Promise<void> => {
    const invitation = asRecord((await invite(colleague.email))['invitation'])
    const path = { invitationId: String(invitation['id']) }
    await step({ operation, status: 200, headers: colleague.session, path })
  }
  await answer('post /api/v1/invitations/{invitationId}/decline')
  await invite(colleague.email)
  await step({ operation: 'get /api/v1/invitations', status: 200, headers: colleague.session })
  await answer('post /api/v1/invitations/{invitationId}/accept')
  await invite(colleague.email, 200)
  await invite(`${randomUUID()}@example.com`)
  await step({ operation: `get ${apps}/admins`, status: 200, ...managed })
  await step({
    operation: `delete ${apps}/admins`,
    status: 200,
    ...managed,
    query: { accountId: colleague.accountId },
  })
  const { email, session: admin } = await real.newPerson(true)
  const quotas = '/api/v1/quotas'
  const ofAccount = { headers: admin, query: { email }, real: { email } }
  for (const method of ['put', 'get']) {
    const ofApp = { headers: admin, path: mine }
    await step({ operation: `${method} ${quotas}/credit/{clientId}`, status: 200, ...ofApp })
    await step({ operation: `${method} ${apps}/billing/settings`, status: 200, ...ofApp })
    await step({ operation: `${method} ${apps}/billing/overage`, status: 200, ...managed })
    await step({ operation: `${method} ${quotas}/accounts`, status: 200, ...ofAccount })
  }
  await step({ operation: `get ${quotas}/network`, status: 200, ...ofAccount })
  await step({
    operation: `post ${apps}/credentials`,
    status: 200,
    ...managed,
    query: { target: 'm2m' },
  })
  const signerSecret = await step({
    operation: `post ${apps}/signer-secrets`,
    status: 201,
    ...managed,
  })
  await step({ operation: `get ${apps}/signer-secrets`, status: 200, ...managed })
  await step({
    operation: `delete ${apps}/signer-secrets`,
    status: 200,
    ...managed,
    query: { secretId: String(signerSecret['id']) },
  })
  const domain = await step({ operation: `post ${apps}/domains`, status: 201, ...managed })
  await step({ operation: `get ${apps}/domains`, status: 200, ...managed })
  await step({
    operation: `delete ${apps}/domains`,
    status: 200,
    ...managed,
    query: { domainId: String(domain['id']) },
  })
  const trusted = await step({
    operation: `post ${apps}/trusted-issuers`,
    status: 201,
    ...managed,
  })
  const which = { query: { issuerId: String(trusted['id']) } }
  await step({ operation: `get ${apps}/trusted-issuers`, status: 200, ...managed })
  await step({ operation: `post ${apps}/trusted-issuers/check`, status: 200, ...managed })
  await step({ operation: `put ${apps}/trusted-issuers`, status: 200, ...managed, ...which })
  await step({ operation: `delete ${apps}/trusted-issuers`, status: 200, ...managed, ...which })
  await tellWebhooks(step, {
    ...managed,
    clientId: mine.clientId,
    // The example's host has a name that no resolver knows (RFC 2606).
    attempted: (endpointId) =>
      until(async () => {
        const attempts = await real.core.sql.query(
          'select 1 from webhook_deliveries where endpoint_id = $1 and last_error is not null',
          [endpointId],
        )
        return attempts.rowCount === 1
      }),
  })
  await step({ operation: `get ${apps}/signer/routing`, status: 200, ...managed })
  await step({ operation: `get ${apps}/billing`, status: 200, ...managed })
  await step({ operation: `get ${apps}/billing/processor`, status: 200, ...managed })
  await step({ operation: `post ${apps}/billing/processor/connect`, status: 200, ...managed })
  await step({ operation: `delete ${apps}/billing/processor`, status: 200, ...managed })
  await step({ operation: `post ${apps}/billing/whatif`, status: 200, ...managed })
  // Makes the current month a past one.
  await step({
    operation: `post ${apps}/test-clock`,
    status: 200,
    ...managed,
    real: { advanceSeconds: 2_592_000 },
  })
  await step({
    operation: `get ${apps}/billing/statements/{month}`,
    status: 200,
    ...managed,
    path: { ...mine, month: '2026-03' },
  })
  await step({ operation: `get ${apps}/test-clock`, status: 200, ...managed })
  const decision = decisionOf(real.core.clock.now(), mine.clientId)
  await real.core.as().recordDecisions({ decisions: [decision] })
  await step({ operation: `get ${apps}/decisions`, status: 200, ...managed })
  await step({
    operation: `get ${apps}/decisions/{decisionId}`,
    status: 200,
    ...managed,
    path: { ...mine, decisionId: decision.id },
  })
  await step({ operation: `put ${apps}/manifest`, status: 200, ...managed })
  await step({ operation: `get ${apps}/manifest`, status: 200, ...managed })
  const profile = await step({
    operation: `post ${apps}/discovery-profiles`,
    status: 201,
    ...managed,
  })
  const one = { ...managed, path: { ...mine, id: String(profile['id']) } }
  await step({ operation: `get ${apps}/discovery-profiles`, status: 200, ...managed })
  for (const method of ['put', 'get', 'delete'])
    await step({ operation: `${method} ${apps}/discovery-profiles/{id}`, status: 200, ...one })
  const plan = await step({ operation: `post ${apps}/plans`, status: 201, ...managed })
  const planId = String(plan['id'])
  await step({ operation: `put ${apps}/plans`, status: 200, ...managed, real: { id: planId } })
  await step({ operation: `get ${apps}/plans`, status: 200, ...managed })
  const { rows: free } = await real.core.sql.query<{ id: string }>(
    `select p.id from plans p join clients c using (app_id) where c.client_id = $1 and p.is_network_default`,
    [mine.clientId],
  )
  const synced = { path: { ...mine, planId: free[0]?.id ?? '' } }
  await step({ operation: `post ${apps}/plans/{planId}/sync`, status: 200, ...managed, ...synced })
  const versions = { ...managed, path: { ...mine, planId } }
  await step({ operation: `get ${apps}/plans/{planId}/versions`, status: 200, ...versions })
  await step({ operation: `delete ${apps}/plans`, status: 200, ...managed, query: { planId } })
  for (const method of ['put', 'get'])
    await step({ operation: `${method} ${apps}/starter-plan`, status: 200, ...managed })
  const appKey = await step({ operation: `post ${apps}/keys`, status: 201, ...managed })
  await step({ operation: `get ${apps}/keys`, status: 200, ...managed })
  await step({
    operation: `delete ${apps}/keys`,
    status: 200,
    ...managed,
    query: { keyId: String(appKey['keyId']) },
  })
  await step({ operation: `get ${apps}/audit`, status: 200, ...managed })
  await step({ operation: `delete ${apps}`, status: 200, ...managed })
  await step({
    operation: 'post /api/v1/ingest/events',
    status: 200,
    headers: { authorization: 'Bearer ingest-secret-of-at-least-32-characters' },
    real: { client_id: app.clientId, usage_subject: 'ada' },
  })
  const eventId = '6a0f2e64-4c3e-4d0e-9b1b-1f5f5a4b8a10'
  const signed = {
    auth_id: `${app.clientId}:ada`,
    computed_fee: '8420000000000',
    current_time: real.core.clock.now().toISOString(),
  }
  await real.core.as().ingestEvents({ envelopes: [envelope(signed, { id: eventId })] })
  await step({
    operation: 'get /api/v1/builder/apps/{clientId}/usage/requests/{eventId}',
    status: 200,
    path: { eventId },
  })
  await step({
    operation: 'get /api/v1/builder/apps/{clientId}/usage/requests/{eventId}/receipt',
    status: 200,
    path: { eventId },
  })
  await step({ operation: 'get /api/v1/builder/apps/{clientId}/usage/roots', status: 200 })
  await step({ operation: `get ${apps}/billing/owner-plan`, status: 200, headers: owner })
  await step({ operation: `get ${apps}/billing/owner-plans`, status: 200, headers: owner })
  const { rows: platform } = await real.core.sql.query<{ client_id: string }>(
    `select client_id from clients join platform_app using (app_id) where kind = 'public'`,
  )
  const included = { ...freeTerms, included: usdAttos(7n * 10n ** 18n) }
  await step({
    operation: `post ${apps}/billing/owner-plan`,
    status: 200,
    headers: owner,
    real: { planId: await newPlan(grants, included, platform[0]?.client_id) },
  })
  await newPlan(grants, { ...freeTerms, type: 'usage', chargeThreshold: usdAttos(10n ** 19n) })
  await tellWallet(step, grants)
  return steps
}

/** Creates another plan of an app with these terms. */
async function newPlan(
  { app, real }: Grants,
  terms: PlanTerms,
  clientId: string = app.clientId,
): Promise<string> {
  const { sql, clock } = real.core
  const { rows } = await sql.query<{ app_id: string }>(
    'select app_id from clients where client_id = $1',
    [clientId],
  )
  const plan = {
    appId: appId(rows[0]?.app_id ?? ''),
    id: randomUUID(),
    name: `Studio ${randomUUID()}`,
  }
  const kind = { status: 'active', isStarterDefault: false, isNetworkDefault: false } as const
  await insertPlan(sql, { ...plan, ...kind }, { terms, at: clock.now() })
  return plan.id
}

/** Creates a webhook endpoint, calls its operations, and deletes it. */
async function tellWebhooks(
  step: (request: Step) => Promise<Record<string, unknown>>,
  {
    clientId,
    attempted,
    ...managed
  }: {
    readonly clientId: string
    readonly headers: Headers
    /** Waits until the endpoint's delivery was attempted. */
    attempted(endpointId: string): Promise<void>
  },
): Promise<void> {
  const all = `${apps}/webhook-endpoints`
  const created = await step({ operation: `post ${all}`, status: 201, ...managed })
  const endpointId = String(asRecord(created['endpoint'])['id'])
  const one = { ...managed, path: { clientId, endpointId } }
  await step({ operation: `get ${all}`, status: 200, ...managed })
  for (const method of ['get', 'put'])
    await step({ operation: `${method} ${all}/{endpointId}`, status: 200, ...one })
  await step({ operation: `post ${all}/{endpointId}/rotate-secret`, status: 200, ...one })
  await step({ operation: `post ${all}/{endpointId}/ping`, status: 202, ...one })
  await attempted(endpointId)
  await step({ operation: `get ${all}/{endpointId}/deliveries`, status: 200, ...one })
  await step({ operation: `post ${all}/{endpointId}/deliveries/replay`, status: 200, ...one })
  await step({ operation: `delete ${all}/{endpointId}`, status: 200, ...one })
}
