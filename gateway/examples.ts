/** What the OpenAPI document shows as examples, by the name of the schema or by the operation of the body. */

const correlation_id = '0b9d2c36-0f3a-4f5e-9c0e-5d1f7a6b8c90'
const createdAt = '2026-01-15T09:30:00.000Z'
const id = '3f1c9a52-7d4e-4b86-9a3d-2f60c1e8b745'
const clientId = 'app_0123456789abcdef01234567'
const externalUserId = 'ada'

const user = {
  id, clientId, externalUserId, email: 'ada@example.com', status: 'active', role: 'user',
  createdAt, updatedAt: createdAt, deactivatedAt: null,
}

export const schemaExamples: Readonly<Record<string, object>> = {
  User: user,
  UpdatedUser: { success: true, ...user },
  UserList: { users: [user] },
  Deactivated: { success: true, status: 'inactive', correlation_id, effectiveBy: createdAt },
  RevokedKey: { success: true, correlation_id, keyId: id, revokedAt: createdAt, effectiveBy: createdAt },
  CreatedKey: {
    keyId: id, id, apiKey: `${clientId}_secret`, createdAt, clientId, externalUserId, label: null, correlation_id,
  },
}

const users = '/api/v1/apps/{clientId}/users'
export const bodyExamples: Readonly<Record<string, object>> = {
  [`post ${users}`]: { externalUserId, email: 'ada@example.com' },
  [`put ${users}`]: { externalUserId, status: 'active' },
  [`post ${users}/{externalUserId}/allowances`]: { amountUsdMicros: '250000', source: 'manual' },
  [`post ${users}/{externalUserId}/keys`]: { label: 'laptop' },
  'post /webhooks/remote-signer': { headers: { Authorization: ['Bearer eyJhbGciOi…'] } },
}
