import createClient from 'openapi-fetch'
import type { paths } from './api.ts'

// A backend's round with the generated types, without casts: create a user, mint a token, read the
// balance.
const [baseUrl = '', clientId = '', authorization = ''] = process.argv.slice(2)
const app = createClient<paths>({ baseUrl, headers: { authorization } })

const user = await app.POST('/api/v1/apps/{clientId}/users', {
  params: { path: { clientId } },
  body: { externalUserId: 'grace', email: 'grace@example.com' },
})
if (user.error) throw new Error(user.error.code)
const externalUserId: string = user.data.externalUserId

const token = await app.POST('/api/v1/apps/{clientId}/users/{externalUserId}/token', {
  params: { path: { clientId, externalUserId } },
  body: { scope: 'sign:job' },
})
if (token.error) throw new Error('error' in token.error ? token.error.error : 'refused')

const own = createClient<paths>({
  baseUrl,
  headers: { authorization: `Bearer ${token.data.access_token}` },
})
const balance = await own.GET('/api/v1/user/usage/balance')
if (balance.error) throw new Error(balance.error.code)

const refused = await app.POST('/api/v1/apps/{clientId}/users/{externalUserId}/allowances', {
  params: { path: { clientId, externalUserId } },
  body: { amountUsdMicros: '5', featureKey: 'nothing' },
})
// The code discriminates the union, so a wrong code does not compile.
const isUnknown: boolean = refused.error?.code === 'feature_unknown'

const micros: bigint = BigInt(balance.data.balanceUsdMicros)
process.stdout.write(JSON.stringify({ externalUserId, micros: String(micros), isUnknown }))
