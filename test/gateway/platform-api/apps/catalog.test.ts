import { describe, expect, it } from 'vitest'
import { asRecord } from '../../support.ts'
import { app, person, setUpApp, ask } from '../support.ts'

setUpApp('admin')

const read = (headers: Readonly<Record<string, string>> = {}) =>
  ask('GET', '/manifest', { authorization: app.basic, headers })
const exclude = (...pairs: object[]) =>
  ask('PUT', '/manifest', { person, json: { excludedCapabilities: pairs } })

describe('manifest', () => {
  it('is a deprecated stub with a strong ETag', async () => {
    const { status, body, headers } = await read()
    expect([status, body]).toEqual([
      200,
      { capabilities: [], excludedCapabilities: [], manifestVersion: 'empty' },
    ])
    expect([headers.get('etag'), headers.get('deprecation'), headers.get('cache-control')]).toEqual(
      ['"empty"', 'true', 'private, no-cache'],
    )
  })

  it.each([
    ['"empty"', 304, 0],
    ['W/"empty"', 304, 0],
    ['*', 304, 0],
    ['"other", W/"empty"', 304, 0],
    ['"other"', 200, 71],
    ['empty', 200, 71],
    ['', 200, 71],
  ])('answers If-None-Match %s with %i and %i bytes', async (input, status, bytes) => {
    const answer = await read({ 'if-none-match': input })
    expect([answer.status, answer.headers.get('etag'), answer.text.length]).toEqual([
      status,
      '"empty"',
      bytes,
    ])
  })

  it('returns the same headers and no body to HEAD', async () => {
    const { status, text, headers } = await ask('HEAD', '/manifest', { authorization: app.basic })
    expect([status, text, headers.get('etag'), headers.get('deprecation')]).toEqual([
      200,
      '',
      '"empty"',
      'true',
    ])
  })

  it('changes its version with its content', async () => {
    const { status, body, headers } = await exclude(
      { pipeline: 'b', modelId: '*' },
      { pipeline: 'a', modelId: 'm' },
    )
    expect([status, body['excludedCapabilities']]).toEqual([
      200,
      [
        { pipeline: 'a', modelId: 'm' },
        { pipeline: 'b', modelId: '*' },
      ],
    ])
    expect(headers.get('etag')).toBe(`"${String(body['manifestVersion'])}"`)
    expect((await read({ 'if-none-match': '"empty"' })).body).toEqual(body)
    for (const wrong of [
      [{ pipeline: 'a' }],
      [{ pipeline: '', modelId: '*' }],
      [5],
      [{ pipeline: 'a', modelId: 'b', c: 1 }],
    ]) {
      expect(
        (await ask('PUT', '/manifest', { person, json: { excludedCapabilities: wrong } })).status,
      ).toBe(400)
    }
    expect((await ask('PUT', '/manifest', { person, json: {} })).status).toBe(400)
  })
})

describe('discovery profiles', () => {
  it('are created, listed, read, changed and deleted', async () => {
    const created = await ask('POST', '/discovery-profiles', {
      person,
      json: {
        name: 'Fast',
        policy: { topN: 3, sortBy: 'price' },
        capabilities: [
          { pipeline: 'p', modelId: 'm', discoveryPolicy: { topN: 1 } },
          { pipeline: 'p', modelId: 'n' },
        ],
      },
    })
    const path = `/discovery-profiles/${String(created.body['id'])}`
    expect([created.status, Object.keys(created.body)]).toEqual([201, ['id']])
    const profile = asRecord((await ask('GET', path, { authorization: app.basic })).body['profile'])
    expect(profile).toMatchObject({
      id: created.body['id'],
      clientId: app.clientId,
      name: 'Fast',
      policy: { topN: 3, sortBy: 'price' },
      capabilities: [
        { pipeline: 'p', modelId: 'm', discoveryPolicy: { topN: 1 } },
        { pipeline: 'p', modelId: 'n', discoveryPolicy: null },
      ],
    })
    expect(
      (await ask('GET', '/discovery-profiles', { authorization: app.basic })).body['profiles'],
    ).toEqual([profile])
    expect(
      (await ask('PUT', path, { person, json: { policy: {}, capabilities: [] } })).body['success'],
    ).toBe(true)
    expect(asRecord((await ask('GET', path)).body['profile'])).toMatchObject({
      name: 'Fast',
      policy: {},
      capabilities: [],
    })
    expect((await ask('DELETE', path)).body['success']).toBe(true)
    for (const method of ['GET', 'DELETE']) expect((await ask(method, path)).status).toBe(404)
    expect((await ask('PUT', path, { person, json: {} })).status).toBe(404)
  })

  it.each([
    {},
    { name: '' },
    { name: 5 },
    { name: 'x', policy: [] },
    { name: 'x', policy: { topN: 0 } },
    { name: 'x', policy: { sortBy: 'x' } },
    { name: 'x', policy: { filters: { maxSwapRatio: 2 } } },
    { name: 'x', capabilities: [{ pipeline: 'p' }] },
    {
      name: 'x',
      capabilities: [
        { pipeline: 'p', modelId: 'm' },
        { pipeline: 'p', modelId: 'm' },
      ],
    },
    { name: 'taken' },
  ])('are refused with 400 for %j', async (json) => {
    await ask('POST', '/discovery-profiles', { person, json: { name: 'Taken' } })
    expect((await ask('POST', '/discovery-profiles', { person, json })).status).toBe(400)
  })
})

describe('app-level keys', () => {
  it('are created, listed and revoked, but deprecated', async () => {
    const created = await ask('POST', '/keys', { person, json: { label: 'ci' } })
    expect([
      created.status,
      created.headers.get('deprecation'),
      created.headers.get('cache-control'),
    ]).toEqual([201, 'true', 'no-store'])
    expect(created.body).toMatchObject({
      id: created.body['keyId'],
      apiKey: expect.stringMatching(/^svc_ak_/),
      label: 'ci',
    })
    const listed = await ask('GET', '/keys')
    expect(listed.text).not.toContain(String(created.body['apiKey']))
    expect(listed.body['keys']).toEqual([
      expect.objectContaining({
        keyId: created.body['keyId'],
        clientId: app.clientId,
        status: 'active',
        subscriptionId: null,
      }),
    ])
    const gone = await ask('DELETE', `/keys?keyId=${String(created.body['keyId'])}`)
    expect([gone.body['success'], gone.headers.get('deprecation')]).toEqual([true, 'true'])
    expect((await ask('DELETE', '/keys?keyId=x')).status).toBe(404)
    expect((await ask('POST', '/keys', { person, json: { subscriptionId: 'x' } })).status).toBe(404)
  })
})
