import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest'
import { main } from '../../../../deploy/main.ts'
import { newDecisionId } from '../../../../proto/decision-id.ts'
import { day, serviceToken } from '../../../core/support.ts'
import { decisionOf } from '../../../support/usage/decisions.ts'
import { type Real, type RealApp, startReal } from '../../real.ts'
import { asRecord } from '../../support.ts'

let real: Real
let app: RealApp
beforeAll(async () => {
  real = await startReal()
  app = await real.newApp('acme')
})
afterAll(() => real.stop())

const at = () => real.core.clock.now()

async function keep(): Promise<string> {
  const decision = decisionOf(at(), app.clientId)
  await real.core.as().recordDecisions({ decisions: [decision] })
  return decision.id
}

async function read(of: RealApp, id: string, headers: Readonly<Record<string, string>>) {
  const response = await fetch(`${real.url}/api/v1/apps/${of.clientId}/decisions/${id}`, {
    headers: { ...headers },
  })
  return { status: response.status, body: asRecord(await response.json()) }
}

describe('sidecar decision', () => {
  it('is explained to the client and members of its app', async () => {
    const id = await keep()
    for (const headers of [{ authorization: app.basic }, app.session]) {
      const { status, body } = await read(app, id, headers)
      expect(status).toBe(200)
      expect(body).toMatchObject({
        id,
        code: 'insufficient_balance',
        rule: 'insufficient_balance',
        credential: { kind: 'api_key', source: 'memory', ageMs: 12_300 },
        session: { sequence: '7', priorCall: { source: 'sidecar' } },
        money: { boundUsdNanos: '3300000', lease: { leftUsdNanos: '10000' } },
      })
      expect(body['explanation']).toContain(
        'A call is refused when its bound exceeds the available money.',
      )
    }
  })

  it('is listed with others of its app, newest first', async () => {
    const mine = await real.newApp('lister')
    const sent = ['a', 'b'].map((code) => ({ ...decisionOf(at(), mine.clientId), code }))
    for (const decision of sent) {
      await real.core.as().recordDecisions({ decisions: [decision] })
      real.core.clock.advance(1_000)
    }
    const list = async (query: string) => {
      const url = `${real.url}/api/v1/apps/${mine.clientId}/decisions${query}`
      const response = await fetch(url, { headers: { authorization: mine.basic } })
      const { decisions } = asRecord(await response.json())
      return [
        response.status,
        Array.isArray(decisions) ? decisions.map((each) => asRecord(each)['code']) : null,
      ]
    }
    expect(await list('')).toEqual([200, ['b', 'a']])
    expect(await list('?limit=1')).toEqual([200, ['b']])
    expect(await list('?code=a&externalUserId=ada')).toEqual([200, ['a']])
    expect(await list('?limit=101')).toEqual([400, null])
  })

  it('is hidden from other apps and from requests without a credential', async () => {
    const id = await keep()
    const other = await real.newApp('other')
    const unknown = newDecisionId(at().getTime(), true)
    const seen = async (decisionId: string) => {
      const { status, body } = await read(other, decisionId, { authorization: other.basic })
      return { status, ...body, correlation_id: '' }
    }
    expect((await seen(id)).status).toBe(404)
    expect(await seen(id)).toEqual(await seen(unknown))
    expect((await read(app, id, other.session)).status).toBe(404)
    expect((await read(app, id, {})).status).toBe(404)
    expect((await read(app, 'x', { authorization: app.basic })).status).toBe(404)
  })
})

describe('tollgate decision', () => {
  let out = ''
  let err = ''
  beforeEach(() => {
    out = ''
    err = ''
    vi.stubEnv('CORE_TARGET', real.core.core.target)
    vi.stubEnv('CORE_TOKEN', serviceToken)
    vi.spyOn(process.stdout, 'write').mockImplementation((text) => ((out += String(text)), true))
    vi.spyOn(process.stderr, 'write').mockImplementation((text) => ((err += String(text)), true))
  })
  afterEach(() => {
    vi.restoreAllMocks()
    vi.unstubAllEnvs()
  })

  it('explains a decision, and lists its figures with their origin and age', async () => {
    const id = await keep()
    expect(await main(['decision', id])).toBe(0)
    const lines = out.split('\n').map((line) => line.replace(/ {2,}/g, '  '))
    expect(lines[0]).toMatch(/^Refused with 483 insufficient_balance/)
    expect(lines).toEqual(
      expect.arrayContaining([
        `decision  ${id}`,
        `identity  ${app.clientId}:ada  memory  12.3 s`,
        'bound  0.0033 USD  lease',
        'remaining  0.00 USD  core  0.4 s',
        'lease left  0.00001 USD  0192f3a0-0000-7000-8000-000000000001  3.1 s',
        'rate  3000.00 USD  core  4 s',
        'prior call  2026-03-10T11:59:50Z  sidecar',
      ]),
    )
  })

  it('prints one document with --json', async () => {
    const id = await keep()
    expect(await main(['decision', id, '--json'])).toBe(0)
    expect(JSON.parse(out)).toMatchObject({
      decision: { id, money: { rateRaised: false } },
      explanation: expect.any(Array),
    })
  })

  it.each([
    ['an unknown id', () => newDecisionId(at().getTime(), true), /there is no record/],
    ['an expired one', () => newDecisionId(at().getTime() - 8 * day, true), /kept for 7 days/],
    ['one not recorded', () => newDecisionId(at().getTime(), false), /DECISION_RECORDS_PER_SECOND/],
    ['text that is not an id', () => 'dec_1', /24 hexadecimal digits/],
  ])('explains why there is nothing to show: %s', async (_, id, words) => {
    expect(await main(['decision', id()])).toBe(1)
    expect(err).toMatch(words)
  })

  it('lists the newest of one app, and reports an empty list', async () => {
    real.core.clock.advance(1_000)
    const id = await keep()
    expect(await main(['decision', '--app', app.clientId, '--limit', '1'])).toBe(0)
    const [header, row] = out.split('\n').map((line) => line.split(/ {2,}/))
    expect(header).toEqual(['decision', 'at', 'status', 'rule', 'user', 'session', 'call'])
    expect(row?.[0]).toBe(id)
    expect(row?.slice(2)).toEqual([
      '483',
      'insufficient_balance',
      `${app.clientId}:ada`,
      '9f86d081',
      '7',
    ])
    out = ''
    expect(await main(['decision', '--user', 'nobody'])).toBe(0)
    expect(out).toBe('No decisions are recorded.\n')
  })

  it('requires one id, or options of the list', async () => {
    expect(await main(['decision', 'a', '--user', 'b'])).toBe(2)
    expect(await main(['decision', '--limit', '101'])).toBe(2)
    expect(await main(['decision', 'a', 'b'])).toBe(2)
  })
})
