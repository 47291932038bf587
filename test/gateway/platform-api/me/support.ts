import { credentials } from '@grpc/grpc-js'
import { unary } from '../../../../core/lib/grpc.ts'
import { GrantType } from '../../../../proto/oauth.ts'
import { serviceTokenHeader } from '../../../../proto/headers.ts'
import { DeviceServiceClient } from '../../../../proto/gen/ts-proto/tollgate/tokens/v1/devices.ts'
import { serviceToken } from '../../../core/support.ts'
import type { Person } from '../../../support/web/people.ts'
import type { Console } from '../../console.ts'
import { asRecord } from '../../support.ts'

/** Logs a person in to an app with a device, which makes it a user of the app. */
export async function useApp(
  console: Console,
  app: { readonly clientId: string },
  person: Person,
): Promise<{ readonly accessToken: string; readonly refreshToken: string }> {
  const post = async (path: string, fields: Record<string, string>) => {
    const form = new URLSearchParams(fields).toString()
    const answer = await console.send('POST', `/api/v1/oidc${path}`, { form })
    return asRecord(await answer.json())
  }
  const client = new DeviceServiceClient(console.core.target, credentials.createInsecure())
  const started = await post('/device/auth', { client_id: app.clientId })
  const decision = { userCode: String(started['user_code']), action: 'approve' }
  await unary(client.decideDevice.bind(client))(
    { sessionToken: person.token, ...decision },
    { deadlineMs: 10_000, headers: { [serviceTokenHeader]: serviceToken } },
  )
  client.close()
  const tokens = await post('/token', {
    grant_type: GrantType.deviceCode,
    device_code: String(started['device_code']),
    client_id: app.clientId,
  })
  return {
    accessToken: String(tokens['access_token']),
    refreshToken: String(tokens['refresh_token']),
  }
}
