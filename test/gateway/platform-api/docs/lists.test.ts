import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { basicOf, bearerOf } from '../../../core/support.ts'
import { type Operation, type Real, addressFor, operationsOf, startReal } from '../../real.ts'
import { asRecord } from '../../support.ts'

type Headers = Readonly<Record<string, string>>

let real: Real
let session: Headers
let document: Record<string, unknown>
let lists: readonly List[]
beforeAll(async () => {
  real = await startReal()
  session = (await real.newApp('lists')).session
  const { operations, ...table } = await operationsOf(real.url, session)
  document = table.document
  lists = operations.flatMap(toList)
})
afterAll(() => real.stop())

interface List {
  readonly operation: Operation
  readonly id: string
  /** Members of the answer that are lists. */
  readonly arrays: readonly string[]
  readonly pages: boolean
  readonly properties: Record<string, unknown>
  readonly required: readonly string[]
  readonly security: string
}

/** Returns the operation if its operationId is that of a list. */
function toList(operation: Operation): List[] {
  const described = asRecord(
    asRecord(asRecord(document['paths'])[operation.path])[operation.method.toLowerCase()],
  )
  const id = String(described['operationId'])
  const answer = asRecord(asRecord(described['responses'])['200'] ?? {})
  const media = asRecord(answer['content'] ?? {})['application/json']
  if (operation.method !== 'GET' || !id.startsWith('list') || media === undefined) return []
  const schema = resolve(asRecord(media)['schema'])
  // By specification plans are a bare array, or an object with another name (docs/decisions/35.md).
  if (schema['anyOf'] !== undefined) return []
  const properties = asRecord(schema['properties'])
  return [
    {
      operation,
      id,
      arrays: Object.keys(properties).filter(
        (name) => asRecord(properties[name])['type'] === 'array',
      ),
      pages: operation.parameters.some(({ name }) => name === 'cursor'),
      properties,
      required: Array.isArray(schema['required']) ? schema['required'].map(String) : [],
      security: JSON.stringify(described['security'] ?? []),
    },
  ]
}

function resolve(schema: unknown): Record<string, unknown> {
  const { $ref } = asRecord(schema)
  if (typeof $ref !== 'string') return asRecord(schema)
  const schemas = asRecord(asRecord(document['components'])['schemas'])
  return asRecord(schemas[$ref.replace('#/components/schemas/', '')])
}

/**
 * Initial entries of a new app: two apps of its owner, the owner as a member, and the audit entry
 * of its creation.
 */
const inherent: Readonly<Record<string, number>> = {
  listApps: 2,
  listMembers: 1,
  listAudit: 1,
  // The Starter plan, and the usage that it includes.
  listSubscriptions: 1,
  listWalletTransactions: 1,
  // The platform app's Starter.
  listOwnerPlans: 1,
}

async function newApp() {
  const response = await fetch(`${real.url}/api/v1/apps`, {
    method: 'POST',
    headers: { ...session, 'content-type': 'application/json' },
    body: JSON.stringify({ name: 'New' }),
  })
  const app = asRecord(await response.json())
  const clientId = String(app['clientId'])
  const basic = basicOf(String(app['m2mClientId']), String(app['m2mClientSecret']))
  return { clientId, basic, m2m: real.core.as(basic) }
}

describe('every list', () => {
  it('is in the table that generates this test', () => {
    expect(lists.map(({ id }) => id)).toEqual(
      expect.arrayContaining(['listUsers', 'listKeys', 'listDecisions', 'listSignerSecrets']),
    )
  })

  it('always has its array, and nextCursor if it is paged', () => {
    for (const { id, arrays, pages, properties, required } of lists) {
      expect([id, arrays.length > 0]).toEqual([id, true])
      expect([id, required]).toEqual([id, expect.arrayContaining([...arrays])])
      // Absent on the last page.
      expect([id, 'nextCursor' in properties]).toEqual([id, pages])
      expect([id, required.includes('nextCursor')]).toEqual([id, false])
    }
  })

  it('is an empty array without a next page for a new app', async () => {
    const { clientId, basic, m2m } = await newApp()
    const ask = async (
      { operation, id, arrays, security }: List,
      { userToken = '', endpointId = '' } = {},
    ) => {
      const headers = security.includes('userToken')
        ? { authorization: userToken }
        : security.includes('session')
          ? session
          : { authorization: basic }
      const address = addressFor(operation, { clientId, endpointId })
      const response = await fetch(real.url + address, { headers })
      const body = asRecord(await response.json())
      expect([id, response.status, body['nextCursor']]).toEqual([id, 200, undefined])
      const items = arrays.map((name) => body[name])
      expect([id, items.every(Array.isArray)]).toEqual([id, true])
      expect([id, items.flat().length]).toEqual([id, inherent[id] ?? 0])
    }
    const ofUser = ({ operation, security }: List) =>
      operation.path.includes('{externalUserId}') || security.includes('userToken')
    const ofEndpoint = ({ operation }: List) => operation.path.includes('{endpointId}')
    // Of the deployment, for platform admins (operate/routes.test.ts).
    const ofOperators = ({ operation }: List) => operation.path.includes('/internal/operate/')
    // Of a person who is a user of the app (me/routes.test.ts).
    const ofOneself = ({ operation }: List) => operation.path.includes('/internal/me/')
    const others = [ofUser, ofEndpoint, ofOperators, ofOneself]
    const ofApp = lists.filter((list) => !others.some((isOf) => isOf(list)))
    for (const list of ofApp) await ask(list)
    const ada = { clientId, externalUserId: 'ada' }
    await m2m.upsertUser(ada)
    const { accessToken } = await m2m.mintUserToken(ada)
    for (const list of lists.filter(ofUser)) await ask(list, { userToken: bearerOf(accessToken) })
    const { endpoint } = await real.core
      .asOperator()
      .createWebhookEndpoint({ clientId, url: 'https://shop.example/hooks', signing: 'ed25519' })
    for (const list of lists.filter(ofEndpoint)) await ask(list, { endpointId: endpoint?.id ?? '' })
  })
})
