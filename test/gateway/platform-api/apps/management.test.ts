import { describe, expect, it } from 'vitest'
import { basicOf, bearerOf } from '../../../core/support.ts'
import { logIn } from '../../../support/web/people.ts'
import { asRecord } from '../../support.ts'
import { person as owner, console, app, setUpApp, ask, status } from '../support.ts'

setUpApp('owner')

describe('apps', () => {
  const all = '/api/v1/apps'

  it('are created, listed, read, changed and deleted by a session', async () => {
    const person = await logIn(console)
    const created = await console.ask('POST', all, { person, json: { name: 'Mine' } })
    expect([created.status, created.headers.get('cache-control'), created.body['id']]).toEqual([
      201,
      'no-store',
      created.body['clientId'],
    ])
    expect(created.body).toMatchObject({
      status: 'approved',
      m2mClientSecret: expect.stringMatching(/^svc_cs_/),
    })
    const one = `${all}/${String(created.body['clientId'])}`
    const listed = await console.ask('GET', `${all}?limit=1`, { person })
    expect(listed.body['apps']).toEqual([
      expect.objectContaining({ clientId: created.body['clientId'], isOwner: true, role: 'owner' }),
    ])
    const changed = await console.ask('PUT', one, {
      person,
      json: { redirectUris: ['https://a.example/cb'], websiteUrl: null },
    })
    expect(changed.body).toMatchObject({
      success: true,
      oidcClient: { redirectUris: ['https://a.example/cb'] },
    })
    const read = await console.ask('GET', one, { person })
    expect(read.body).toMatchObject({
      name: 'Mine',
      canEdit: true,
      canDeleteApp: true,
      billingPattern: 'per_user',
      allowedScopes: 'openid sign:job',
      m2mOidcClient: {
        clientId: created.body['m2mClientId'],
        hasSecret: true,
        secrets: [{ createdAt: expect.any(String), expiresAt: null }],
      },
      oidcClient: { hasSecret: false, secrets: [] },
    })
    const rotated = await console.ask('POST', `${one}/credentials?target=m2m`, { person })
    const { body: after } = await console.ask('GET', one, { person })
    expect(asRecord(after['m2mOidcClient'])['secrets']).toEqual([
      { createdAt: expect.any(String), expiresAt: rotated.body['oldSecretsExpireAt'] },
      { createdAt: rotated.body['createdAt'], expiresAt: null },
    ])
    expect((await console.ask('DELETE', one, { person })).status).toBe(200)
    expect((await console.ask('GET', one, { person })).status).toBe(404)
    const basic = basicOf(
      String(created.body['m2mClientId']),
      String(created.body['m2mClientSecret']),
    )
    expect((await console.ask('GET', one, { authorization: basic })).status).toBe(401)
  })

  it('creates an app once per Idempotency-Key, and repeats its secret', async () => {
    const person = await logIn(console)
    const create = (name: string) =>
      console.ask('POST', '/api/v1/apps', {
        person,
        json: { name },
        headers: { 'idempotency-key': 'one-app' },
      })
    const [first, again, other] = [await create('Once'), await create('Once'), await create('Two')]
    expect([first.status, again.status]).toEqual([201, 201])
    for (const field of ['clientId', 'm2mClientId', 'm2mClientSecret'])
      expect(again.body[field]).toBe(first.body[field])
    expect([other.status, other.body['code']]).toEqual([409, 'idempotency_conflict'])
    const { body } = await console.ask('GET', '/api/v1/apps', { person })
    expect(body['apps']).toHaveLength(1)
  })

  it('show an M2M client only its part', async () => {
    const { body } = await ask('GET', '', { authorization: app.basic })
    expect(body).toEqual({
      clientId: app.clientId,
      name: 'An app',
      isTest: false,
      status: 'approved',
      billingPattern: 'per_user',
      allowedScopes: 'openid sign:job',
      links: { manifest: `/api/v1/apps/${app.clientId}/manifest` },
    })
    const token = await console.as(app.basic).issueMachineToken({})
    expect((await ask('GET', '', { authorization: bearerOf(token.accessToken) })).body).toEqual(
      body,
    )
  })

  it('need a session to be created or listed', async () => {
    expect((await console.ask('POST', all, { json: { name: 'x' } })).status).toBe(401)
    expect((await console.ask('GET', all)).status).toBe(401)
    expect((await console.ask('GET', `${all}?all=true`, { person: owner })).status).toBe(403)
    for (const json of [
      {},
      { name: ' ' },
      { name: 5 },
      { name: 'x', allowedScopes: ['admin'] },
      null,
      [],
    ]) {
      expect((await console.ask('POST', all, { person: owner, json })).status).toBe(400)
    }
  })

  it('accept at most twenty redirect URIs, without fragments or wildcards', async () => {
    const uris = Array.from({ length: 21 }, (_, i) => `https://a.example/${i}`)
    for (const redirectUris of [
      uris,
      ['https://a.example/#x'],
      ['https://*.example/'],
      'https://a.example/',
      [5],
    ]) {
      expect(await status('PUT', '', { person: owner, json: { redirectUris } })).toBe(400)
    }
    expect(await status('PUT', '', { person: owner, json: { redirectUris: uris.slice(1) } })).toBe(
      200,
    )
  })
})

describe('members', () => {
  it('are invited by address, answer by themselves, are changed and removed', async () => {
    const person = await logIn(console)
    const { email, accountId } = person
    const put = (role: string, to = email) =>
      ask('PUT', '/admins', { person: owner, json: { email: to, role } })
    const invited = await put('viewer')
    const unknown = await put('viewer', 'nobody@example.com')
    expect([invited.status, unknown.status, invited.body['status']]).toEqual([202, 202, 'pending'])
    expect((await ask('GET', '/admins')).body).toMatchObject({
      members: [{ email: owner.email }],
      // Both were created at the same time.
      invitations: expect.arrayContaining([
        expect.objectContaining({ email }),
        expect.objectContaining({ email: 'nobody@example.com' }),
      ]),
    })
    const { id } = asRecord(unknown.body['invitation'])
    expect(await status('DELETE', `/admins?invitationId=${id}`)).toBe(200)
    expect(await status('DELETE', `/admins?invitationId=${id}`)).toBe(404)
    expect(await status('DELETE', `/admins?invitationId=${id}&accountId=${accountId}`)).toBe(400)

    const own = (method: string, path = '') =>
      console.ask(method, `/api/v1/invitations${path}`, { person })
    const { body } = await own('GET')
    const [invitation] = Array.isArray(body['invitations']) ? body['invitations'].map(asRecord) : []
    expect(invitation).toMatchObject({ clientId: app.clientId, role: 'viewer' })
    expect((await own('POST', `/${invitation?.['id']}/accept`)).status).toBe(200)
    expect((await own('POST', `/${invitation?.['id']}/accept`)).status).toBe(404)
    expect((await own('POST', '/x/decline')).status).toBe(404)

    expect((await put('admin')).status).toBe(200)
    expect((await ask('GET', '/admins')).body['members']).toHaveLength(2)
    expect((await put('owner')).status).toBe(202)
    const { body: again } = await own('GET')
    const [toOwner] = Array.isArray(again['invitations']) ? again['invitations'].map(asRecord) : []
    expect((await own('POST', `/${toOwner?.['id']}/decline`)).status).toBe(200)
    expect(await status('DELETE', `/admins?accountId=${accountId}`)).toBe(200)
    expect(await status('DELETE', `/admins?accountId=${accountId}`)).toBe(404)
    expect(await status('DELETE', `/admins?accountId=${owner.accountId}`)).toBe(409)
  })
})

describe('credentials', () => {
  it('rotate with an overlap or at once, but never for the public client', async () => {
    const first = await ask('POST', '/credentials?target=m2m')
    expect(first.body).toMatchObject({
      clientId: app.m2mClientId,
      target: 'm2m',
      clientSecret: expect.stringMatching(/^svc_cs_/),
    })
    expect(first.headers.get('cache-control')).toBe('no-store')
    const works = async (secret: string) =>
      (
        await console.ask('GET', `/api/v1/apps/${app.clientId}/users`, {
          authorization: basicOf(app.m2mClientId, secret),
        })
      ).status
    expect([await works(app.secret), await works(String(first.body['clientSecret']))]).toEqual([
      200, 200,
    ])
    await ask('POST', '/credentials?target=m2m&revokeOld=true')
    expect([await works(app.secret), await works(String(first.body['clientSecret']))]).toEqual([
      401, 401,
    ])
    for (const query of ['', '?target=public', '?target=x', '?target=m2m&target=m2m']) {
      expect(await status('POST', `/credentials${query}`)).toBe(400)
    }
  })

  it('are created once per Idempotency-Key', async () => {
    const send = (query: string) =>
      ask('POST', `/credentials?target=m2m${query}`, {
        person: owner,
        headers: { 'idempotency-key': 'one' },
      })
    const [first, again, other] = [await send(''), await send(''), await send('&revokeOld=true')]
    expect(again.body['clientSecret']).toBe(first.body['clientSecret'])
    expect([other.status, other.body['code']]).toEqual([409, 'idempotency_conflict'])
  })
})

describe('domains', () => {
  it('are unique, normalised origins', async () => {
    const created = await ask('POST', '/domains', {
      person: owner,
      json: { domain: 'App.Example' },
    })
    expect([created.status, created.body['origin']]).toEqual([201, 'https://app.example'])
    const again = await ask('POST', '/domains', {
      person: owner,
      json: { domain: 'https://app.example/' },
    })
    expect([again.status, again.body['code']]).toEqual([409, 'conflict'])
    expect(
      await status('POST', '/domains', { person: owner, json: { domain: 'http://app.example' } }),
    ).toBe(400)
    expect((await ask('GET', '/domains')).body['domains']).toHaveLength(1)
    expect(await status('DELETE', `/domains?domainId=${String(created.body['id'])}`)).toBe(200)
    expect(await status('DELETE', `/domains?domainId=${String(created.body['id'])}`)).toBe(404)
  })
})

describe('audit log', () => {
  it('records who did what', async () => {
    await ask('PUT', '', {
      person: owner,
      json: { name: 'New' },
      headers: { 'x-correlation-id': 'corr-1' },
    })
    const { body } = await ask('GET', '/audit?action=app_updated')
    expect(body['entries']).toEqual([
      expect.objectContaining({
        actor: owner.accountId,
        action: 'app_updated',
        status: 'success',
        correlationId: 'corr-1',
        details: { changed: 'name' },
      }),
    ])
    expect(await status('GET', '/audit?cursor=x')).toBe(400)
  })
})

describe('routing', () => {
  it('is flat, and nested for clients that read it there', async () => {
    const flat = {
      dmzUrl: 'http://localhost:8935',
      jwksUrl: 'https://svc.example/api/v1/oidc/jwks',
      webhookUrl: 'https://svc.example/webhooks/remote-signer',
      meteringMode: 'direct',
    }
    const { text, body } = await ask('GET', '/signer/routing', { authorization: app.basic })
    expect(text.startsWith('{"dmzUrl":')).toBe(true)
    expect(body).toMatchObject({
      ...flat,
      clientId: app.clientId,
      routing: { remoteDmzUrl: flat.dmzUrl, jwksUri: flat.jwksUrl },
      patterns: { directDmz: flat },
    })
    expect((await ask('GET', '/signer/routing')).body).toEqual(body)
  })
})
