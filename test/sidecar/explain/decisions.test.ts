import { describe, expect, it } from 'vitest'
import { createLog } from '../../../core/lib/log.ts'
import { explain } from '../../../core/signer/decisions/explanation.ts'
import { parseDecisionId } from '../../../proto/decision-id.ts'
import type { Decision } from '../../../proto/gen/ts-proto/tollgate/signer/v1/decisions.ts'
import { newSigningKey, sign } from '../identity/tokens.ts'
import { keepLog, registerSecret } from '../../support/run/secrecy.ts'
import { firstCall } from '../signer-bodies.ts'
import { type Harness, type Reply, secret, startHarness, until, vectorNow } from '../support.ts'

const key = await newSigningKey('k1')

/** Returns the record of an answer from core. */
async function recordOf({ core }: Harness, { json }: Reply): Promise<Decision> {
  const id = String(json['decision'])
  const find = () => core.script.decisions.find((record) => record.id === id)
  await until(() => find() !== undefined)
  const record = find()
  if (!record) throw new Error('there is no record')
  return record
}

/** The explanation of a record, without its headline. */
const explanationOf = ({ credential, ...record }: Decision): string[] =>
  credential ? explain({ ...record, credential }).slice(1) : []

const bearer = (text: string) => ({ headers: { Authorization: [`Bearer ${text}`] } })
const explainHeader = { 'X-Tollgate-Explain': ['1'] }
const at = (seconds: number): string =>
  new Date((vectorNow + seconds) * 1000).toISOString().replace('Z', '000000Z')

interface Refused {
  readonly code: string
  readonly rule: string
  readonly body: unknown
  readonly says: readonly string[]
  readonly prepare?: (harness: Harness) => unknown
  readonly env?: Readonly<Record<string, string>>
}

const token = (claims: object) => sign(key, { exp: vectorNow + 3600, ...claims })
const refusals: readonly Refused[] = [
  {
    code: 'missing_credential',
    rule: 'missing_credential',
    body: { headers: {} },
    says: ['The credential is missing.'],
  },
  {
    code: 'missing_credential',
    rule: 'malformed_credential',
    body: { headers: { Authorization: ['sk_live_alice'] } },
    says: ['The credential is malformed.'],
  },
  {
    code: 'ambiguous_credential',
    rule: 'ambiguous_credential',
    body: { headers: { Authorization: ['Bearer sk_live_alice', 'Bearer sk_live_poor'] } },
    says: ['The credential is ambiguous.'],
  },
  {
    code: 'invalid_token',
    rule: 'unknown_credential',
    body: bearer('neither-key-nor-token'),
    says: ['The credential is a credential of another form. It identified no user.'],
  },
  {
    code: 'invalid_api_key',
    rule: 'invalid_api_key',
    body: bearer(registerSecret('sk_live_unknown')),
    says: ['The credential is an API key. It identified no user.'],
  },
  {
    code: 'invalid_token',
    rule: 'token_expired',
    body: bearer(await token({ exp: vectorNow - 3600 })),
    says: [
      `It identifies the user user_42 of tenant_a: from the credential itself.`,
      'The token is expired, or it is not valid yet.',
    ],
  },
  {
    code: 'invalid_token',
    rule: 'token_audience',
    body: bearer(await token({ aud: 'https://elsewhere.example' })),
    says: ['The token must be for the audience of the signer.'],
  },
  {
    code: 'invalid_token',
    rule: 'token_signature',
    body: bearer(await sign(await newSigningKey('k1'), { exp: vectorNow + 3600 })),
    // Without a valid signature the token identifies no user.
    says: ['The credential is a token. It identified no user.'],
  },
  {
    code: 'invalid_token',
    rule: 'token_issuer',
    body: bearer(await token({ iss: 'https://elsewhere.example' })),
    says: ['The credential is a token. It identified no user.'],
  },
  {
    code: 'invalid_token',
    rule: 'token_use',
    body: bearer(await token({ token_use: 'machine' })),
    says: ['Of the tokens of this service, only user and signer tokens identify a user.'],
  },
  {
    code: 'invalid_token',
    rule: 'token_revoked',
    body: bearer(await token({ jti: '6f1c2f2e-1d3c-4c55-9a52-0a9c5f1b7e11' })),
    prepare: ({ core }) => core.revoked.add('6f1c2f2e-1d3c-4c55-9a52-0a9c5f1b7e11'),
    says: ['The credential is a token, 6f1c2f2e-1d3c-4c55-9a52-0a9c5f1b7e11.'],
  },
  {
    code: 'insufficient_scope',
    rule: 'insufficient_scope',
    body: bearer(await token({ scope: 'openid' })),
    says: ['The token needs the scope sign:job.'],
  },
  {
    code: 'invalid_identity',
    rule: 'other_identity',
    body: firstCall({ key: 'sk_live_alice', state: { AuthID: 'acme:bob' } }),
    says: ['The credential is an API key, key-alice.'],
  },
  {
    code: 'user_inactive',
    rule: 'user_inactive',
    body: firstCall({ key: 'sk_live_alice' }),
    prepare: ({ core }) => core.users.set('acme:alice', { micros: 1n, active: false }),
    says: ['An inactive user may not spend.'],
  },
  {
    code: 'invalid_state',
    rule: 'invalid_state',
    body: firstCall({ key: 'sk_live_alice', state: { LastUpdate: 'noon' } }),
    says: ['It identifies the user alice of acme: from core.'],
  },
  {
    code: 'insufficient_balance',
    rule: 'insufficient_balance',
    body: firstCall({ key: 'sk_live_poor' }),
    says: [
      'It identifies the user bob of acme: from core.',
      `The session is 9f86d081, of type live: call 0, signed at ${firstCall().state.LastUpdate}, 12000 wei for a second, application acme/echo.`,
      'It is the first call of its session.',
      'A call is refused when its bound exceeds the available money.',
    ],
  },
  {
    code: 'untyped_call',
    rule: 'untyped_call',
    body: firstCall({ key: 'sk_live_alice', state: { Type: '' } }),
    says: [
      'The call has no type or price by which it could be bounded. UNTYPED_CALL_USD sets the amount that such a call reserves.',
    ],
  },
  {
    code: 'rate_unavailable',
    rule: 'rate_unavailable',
    body: firstCall({ key: 'sk_live_alice' }),
    // Reports also fetch the rate.
    prepare: async ({ core: { script, calls } }) => {
      script.usdPerEth = null
      const reports = calls.report
      await until(() => calls.report > reports + 1)
    },
    says: ['It is the first call of its session.'],
  },
  {
    code: 'limit_exceeded',
    rule: 'limit_exceeded',
    body: firstCall({ key: 'sk_live_alice' }),
    prepare: ({ core: { escrow } }) =>
      void Object.assign(escrow, { limit: 'usd_per_day', lendsNothing: true }),
    says: ['The limit is usd_per_day.', 'A limit of the user or key is reached.'],
  },
  {
    code: 'authorization_unavailable',
    rule: 'authorization_unavailable',
    body: firstCall({ key: 'sk_live_alice' }),
    prepare: ({ core }) => {
      core.script.failing = true
      setTimeout(() => (core.script.failing = false), 500)
    },
    says: ['The credential is an API key. It identified no user.'],
  },
  {
    code: 'authorization_unavailable',
    rule: 'overloaded',
    body: firstCall({ key: 'sk_live_alice' }),
    env: { AUTHORIZE_MAX_IN_FLIGHT: '1' },
    prepare: (harness) => {
      harness.core.script.delayMs = 300
      void harness.authorize(firstCall({ key: 'sk_live_alice' }))
    },
    says: ['The request was not read.'],
  },
  {
    code: 'request_too_large',
    rule: 'too_large',
    body: `{"headers":{"Cookie":["${'a'.repeat(1_100_000)}"]}}`,
    says: ['The request was not read.'],
  },
]

describe('a refusal', () => {
  it.each(refusals)('carries an id that explains it: $rule', async (refused) => {
    const harness = await startHarness({
      env: { IDENTITY_AUTH_MODE: 'composite', ...refused.env },
      log: createLog({ level: 'info', name: 'sidecar' }, { write: keepLog }),
    })
    harness.core.script.jwks = { keys: [key.jwk] }
    await refused.prepare?.(harness)
    await new Promise((resolve) => setTimeout(resolve, 50))
    const reply = await harness.authorize(refused.body)
    const { status, reason, code, decision } = reply.json
    expect(reply.transport).toBe(200)
    expect(code).toBe(refused.code)
    // The id follows the members that the signer reads, and is the only new one.
    expect(reply.text).toBe(JSON.stringify({ status, reason, code, decision }))
    expect(parseDecisionId(String(decision))).toEqual({ second: vectorNow, isRecorded: true })
    const record = await recordOf(harness, reply)
    expect(record).toMatchObject({ status, reason, code, rule: refused.rule, occasion: 'refusal' })
    expect(explanationOf(record)).toEqual(expect.arrayContaining([...refused.says]))
    // The harness searches logs for secrets; search the record, too.
    keepLog(JSON.stringify(record))
    for (const hidden of ['sk_live', 'svc_ak_', 'eyJ', secret])
      expect(JSON.stringify(record)).not.toContain(hidden)
  })

  it('explains its figures, their sources and ages', async () => {
    const harness = await startHarness()
    const { clock, authorize, core } = harness
    core.users.set('acme:alice', { micros: 1_000n })
    const call = (sequence: number, price: number) =>
      firstCall({
        key: 'sk_live_alice',
        state: {
          SequenceNumber: sequence,
          LastUpdate: at(clock.seconds - vectorNow),
          InitialPricePerUnit: price,
        },
      })
    expect((await authorize(call(0, 1_000_000_000))).json['status']).toBe(200)
    clock.seconds += 5
    const record = await recordOf(harness, await authorize(call(1, 1_000_000_000_000)))
    expect(record).toMatchObject({
      code: 'insufficient_balance',
      credential: { kind: 'api_key', id: 'key-alice', source: 'memory', ageMs: 5_000 },
      session: {
        sequence: '1',
        lastUpdate: `${new Date((vectorNow + 5) * 1000).toISOString().slice(0, 19)}.000000000Z`,
        priorCall: { sequence: '0', source: 'sidecar' },
      },
      money: {
        source: 'none',
        boundUsdNanos: expect.stringMatching(/^1500000\d$/),
        usdPerEth: '3000',
      },
    })
    const { money } = record
    expect(money?.remainingAgeMs).toBeLessThan(1_000)
    expect(money?.accessAgeMs).toBeLessThan(6_000)
  })

  it('names core as the source of the prior call in a shared session', async () => {
    const harness = await startHarness()
    const { core, authorize } = harness
    const state = (SequenceNumber: number, LastUpdate: string) =>
      firstCall({ key: 'sk_live_alice', state: { SequenceNumber, LastUpdate } })
    await authorize(state(0, at(0)))
    await until(() => core.escrow.owners.size > 0)
    for (const owner of core.escrow.owners.values()) owner.isShared = true
    core.users.set('acme:alice', { micros: 0n })
    harness.clock.seconds += 60
    const source = async () =>
      (await recordOf(harness, await authorize(state(1, at(60))))).session?.priorCall?.source
    await until(async () => (await source()) === 'core')
    expect(await source()).toBe('core')
  })

  it('made while core was unavailable is explained later', async () => {
    const harness = await startHarness()
    const { core, authorize } = harness
    core.script.failing = true
    const reply = await authorize(firstCall({ key: 'sk_live_alice' }))
    expect(reply.json['status']).toBe(503)
    core.script.failing = false
    expect((await recordOf(harness, reply)).code).toBe('authorization_unavailable')
  })
})

describe('a permission', () => {
  it('carries an id only if its end user requests one', async () => {
    const harness = await startHarness()
    const plain = await harness.authorize(firstCall({ key: 'sk_live_alice' }))
    expect('decision' in plain.json).toBe(false)
    const reply = await harness.authorize(
      firstCall({ key: 'sk_live_alice', headers: explainHeader, state: { StateID: 'b' } }),
    )
    expect(reply.json['status']).toBe(200)
    const { decision, ...rest } = reply.json
    expect(Object.keys(rest)).toEqual(Object.keys(plain.json))
    expect(reply.headers['content-length']).toBe(String(Buffer.byteLength(reply.text)))
    const record = await recordOf(harness, reply)
    expect(record).toMatchObject({
      id: decision,
      status: 200,
      code: 'ok',
      rule: 'allowed',
      occasion: 'request',
      money: { source: 'lease', lease: { endsInMs: expect.any(Number) } },
    })
    const { lease, boundUsdNanos } = record.money ?? {}
    expect(Number(lease?.leftUsdNanos)).toBeGreaterThanOrEqual(Number(boundUsdNanos))
    expect(Number(lease?.endsInMs)).toBeGreaterThan(20_000)
  })

  it.each(['0', 'true', { toString: 1 }, [[]]])(
    'is not explained for the header %j',
    async (value) => {
      const { authorize } = await startHarness()
      const { json } = await authorize(
        firstCall({ key: 'sk_live_alice', headers: { 'X-Tollgate-Explain': value } }),
      )
      expect([json['status'], 'decision' in json]).toEqual([200, false])
    },
  )

  it('carries an id for one in DECISION_SAMPLE', async () => {
    const harness = await startHarness({ env: { DECISION_SAMPLE: '3' } })
    const replies: Reply[] = []
    for (let i = 0; i < 6; i++)
      replies.push(
        await harness.authorize(firstCall({ key: 'sk_live_alice', state: { StateID: `s${i}` } })),
      )
    expect(replies.map(({ json }) => 'decision' in json)).toEqual([
      false,
      false,
      true,
      false,
      false,
      true,
    ])
    const sampled = replies.filter(({ json }) => 'decision' in json)
    const records = await Promise.all(sampled.map((reply) => recordOf(harness, reply)))
    expect(records.map(({ occasion }) => occasion)).toEqual(['sample', 'sample'])
  })

  it('carries an id at LOG_LEVEL=debug, which is also in the log', async () => {
    const lines: string[] = []
    const log = createLog({ level: 'debug', name: 's' }, { write: (line) => void lines.push(line) })
    const { authorize } = await startHarness({ log, env: { LOG_LEVEL: 'debug' } })
    const { json } = await authorize(firstCall({ key: 'sk_live_alice' }))
    const { decisionId } = JSON.parse(lines.find((line) => line.includes('"authorize"')) ?? '{}')
    expect(decisionId).toBe(json['decision'])
  })
})

describe('a flood of refusals', () => {
  it('is recorded up to the limit, and the other ids are marked as not recorded', async () => {
    const harness = await startHarness({ env: { DECISION_RECORDS_PER_SECOND: '10' } })
    const { authorize, core, metrics } = harness
    const replies = await Promise.all(Array.from({ length: 100 }, () => authorize({ headers: {} })))
    const ids = replies.map(({ json }) => parseDecisionId(String(json['decision'])))
    expect(ids.filter((id) => id?.isRecorded)).toHaveLength(8)
    expect(ids.filter((id) => id?.isRecorded === false)).toHaveLength(92)
    const seldom = await authorize(firstCall({ key: 'sk_live_poor' }))
    expect((await recordOf(harness, seldom)).code).toBe('insufficient_balance')
    expect(core.script.decisions).toHaveLength(9)
    const page = () => metrics.metrics()
    await until(async () => /records_total\{.*outcome="recorded".*\} 9\n/.test(await page()))
    expect(await page()).toMatch(/records_total\{.*outcome="omitted".*\} 92\n/)
  })
})

describe('a stopping sidecar', () => {
  it('sends the waiting records', async () => {
    const { authorize, core, sidecar } = await startHarness()
    const { json } = await authorize({ headers: {} })
    await sidecar.stop()
    expect(core.script.decisions.map(({ id }) => id)).toContain(json['decision'])
  })
})
