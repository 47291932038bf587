import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { clientId } from '../../fakes/gateway-core/identity.ts'
import { type Harness, basic, serviceToken, startHarness } from '../support.ts'

let harness: Harness
beforeAll(async () => {
  harness = await startHarness()
})
afterAll(() => harness.stop())
beforeEach(() => harness.core.reset())

const app = `/api/v1/apps/${clientId}`
const at = '2026-01-02T03:04:05.000Z'
const record = {
  id: '6f1c2f2e-1d3c-4c55-9a52-0a9c5f1b7e11',
  clientId,
  externalUserId: 'ada',
  email: 'ada@example.com',
  status: 'active',
  role: 'user',
  createdAt: at,
  updatedAt: at,
  deactivatedAt: null,
}

describe('core calls', () => {
  it('carry the service token, the raw credential and the correlation id', async () => {
    await harness.ask('GET', `${app}/users`, { headers: { 'x-correlation-id': 'call-1' } })
    const { metadata } = harness.core.last()
    expect(metadata.get('x-tollgate-service-token')).toEqual([serviceToken])
    expect(metadata.get('authorization')).toEqual([basic])
    expect(metadata.get('x-correlation-id')).toEqual(['call-1'])
  })

  it('ignore a service token from outside', async () => {
    await harness.ask('GET', `${app}/users`, { headers: { 'x-tollgate-service-token': 'forged' } })
    expect(harness.core.last().metadata.get('x-tollgate-service-token')).toEqual([serviceToken])
  })

  it.each(['', 'a b', 'x'.repeat(65), 'ä'])('replace the invalid correlation id %j', async (id) => {
    const { headers } = await harness.ask('GET', '/health', {
      headers: { 'x-correlation-id': id },
    })
    expect(headers.get('x-correlation-id')).toMatch(/^[0-9a-f-]{36}$/)
  })
})

describe('users', () => {
  it('returns 201 for a new user and 200 for a known one, with the record', async () => {
    const answer = await harness.ask('POST', `${app}/users`, {
      json: { externalUserId: 'ada', email: ' a@b.c ', walletHint: 1 },
    })
    expect([answer.status, answer.body]).toEqual([201, record])
    expect(harness.core.last().request).toMatchObject({
      clientId,
      externalUserId: 'ada',
      email: 'a@b.c',
      clearEmail: false,
    })
    harness.core.answer('upsertUser', {
      user: { ...record, deactivatedAt: undefined },
      created: false,
    })
    expect(
      (await harness.ask('POST', `${app}/users`, { json: { externalUserId: 'ada' } })).status,
    ).toBe(200)
  })

  it('lower-cases a status and clears a null email', async () => {
    const { status, body } = await harness.ask('PUT', `${app}/users`, {
      json: { externalUserId: 'ada', status: 'Inactive', email: null },
    })
    expect([status, body]).toEqual([200, { success: true, ...record }])
    expect(harness.core.last().request).toMatchObject({
      status: 'inactive',
      clearEmail: true,
      email: undefined,
    })
  })

  it('lists with filters and a page', async () => {
    const { body } = await harness.ask(
      'GET',
      `${app}/users?status=active&limit=1000&cursor=c&unknown=1`,
    )
    expect(body).toEqual({ users: [record, { ...record, email: null }], nextCursor: 'next' })
    expect(harness.core.last().request).toMatchObject({
      clientId,
      status: 'active',
      limit: 1000,
      cursor: 'c',
    })
  })

  it('deactivates', async () => {
    const { status, body, headers } = await harness.ask(
      'DELETE',
      `${app}/users?externalUserId=a%25b%2Fc%3Ad+e`,
    )
    expect(status).toBe(200)
    expect(body).toEqual({
      success: true,
      status: 'inactive',
      correlation_id: headers.get('x-correlation-id'),
      effectiveBy: at,
    })
    expect(harness.core.last().request).toMatchObject({ externalUserId: 'a%b/c:d e' })
  })
})

describe('path', () => {
  it.each([
    ['a%25b', 'a%b'],
    ['a%2Fb', 'a/b'],
    ['a:b', 'a:b'],
    ['a%3Ab', 'a:b'],
    ['a+b', 'a+b'],
    ['a%2Bb', 'a+b'],
    ['%2525', '%25'],
    ['%C3%A4', 'ä'],
    ['a%20b', 'a b'],
    ['a%3Fb%23c', 'a?b#c'],
    ['x'.repeat(600), 'x'.repeat(600)],
    ['%252F', '%2F'],
  ])('decodes %s once', async (segment, externalUserId) => {
    expect((await harness.ask('GET', `${app}/users/${segment}/keys`)).status).toBe(200)
    expect(harness.core.last().request).toMatchObject({ clientId, externalUserId })
  })
})

describe('keys', () => {
  it('shows the secret once, with both names of its id', async () => {
    const { status, body, headers } = await harness.ask('POST', `${app}/users/ada/keys`, {
      headers: { 'idempotency-key': 'k!1' },
    })
    expect(status).toBe(201)
    expect(headers.get('cache-control')).toBe('no-store')
    expect(body).toEqual({
      keyId: 'k-1',
      id: 'k-1',
      apiKey: `${clientId}_svc_ak_x`,
      createdAt: at,
      clientId,
      externalUserId: 'ada',
      label: null,
      correlation_id: headers.get('x-correlation-id'),
    })
    expect(harness.core.last().request).toMatchObject({
      clientId,
      externalUserId: 'ada',
      idempotencyKey: 'k!1',
    })
  })

  it.each([
    [{ label: ' laptop ' }, 'laptop'],
    [{ label: null }, undefined],
    [{ other: true }, undefined],
    [{ label: '' }, undefined],
  ])('accepts the label of %j and ignores the rest', async (json, label) => {
    expect((await harness.ask('POST', `${app}/users/ada/keys`, { json })).status).toBe(201)
    expect(harness.core.last().request).toMatchObject({ label })
  })

  it('lists without secrets', async () => {
    const { body } = await harness.ask('GET', `${app}/users/ada/keys`)
    expect(body).toEqual({
      clientId,
      externalUserId: 'ada',
      keys: [
        {
          keyId: 'k-1',
          id: 'k-1',
          createdAt: at,
          status: 'active',
          revokedAt: null,
          lastUsedAt: null,
          prefix: 'svc_ak_1a2b',
          label: 'laptop',
        },
      ],
    })
  })

  it('revokes', async () => {
    const { body, headers } = await harness.ask('DELETE', `${app}/users/ada/keys?keyId=k-1`)
    expect(body).toEqual({
      success: true,
      correlation_id: headers.get('x-correlation-id'),
      keyId: 'k-1',
      revokedAt: at,
      effectiveBy: at,
    })
  })
})

describe('allowances', () => {
  const grant = {
    id: 'g-1',
    amountUsdMicros: '5000000',
    source: 'plan_adjustment',
    createdAt: at,
    featureKey: null,
    expiresAt: null,
    remainingUsdMicros: '4999990',
  }
  const amounts = {
    balanceUsdMicros: '4999990',
    consumedUsdMicros: '10',
    lifetimeGrantedUsdMicros: '5000000',
  }
  const detail = {
    externalUserId: 'ada',
    ...amounts,
    grants: [grant],
    remainingUsdMicros: '4999980',
    hasAccess: true,
    canSpend: true,
    featureBalances: [{ featureKey: 'live', balanceUsdMicros: '7' }],
    allowances: { ...amounts, hasAccess: true },
  }

  it('are flat, and nested for existing clients', async () => {
    expect((await harness.ask('GET', `${app}/users/ada/allowances`)).body).toEqual(detail)
  })

  it('answers a grant with 200, the allowance and the grant', async () => {
    const { status, body } = await harness.ask('POST', `${app}/users/ada/allowances`, {
      json: { amountUsdMicros: '250000', featureKey: null },
      headers: { 'idempotency-key': 'once' },
    })
    expect([status, body]).toEqual([200, { ...detail, grant: { ...grant, source: 'manual' } }])
    expect(harness.core.last().request).toMatchObject({
      clientId,
      externalUserId: 'ada',
      amountUsdMicros: '250000',
      source: 'manual',
      featureKey: undefined,
      idempotencyKey: 'once',
    })
  })
})
