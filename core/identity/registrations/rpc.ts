import type * as pb from '../../../proto/gen/ts-proto/tollgate/identity/v1/registrations.ts'
import { operatorActor } from '../../rpc/callers.ts'
import { bearer, operator, operatorWrite } from '../../rpc/guards.ts'
import { type Handlers, rpc } from '../../rpc/serve.ts'
import type { Clients } from '../apps/clients.ts'
import type { Registration, Registrations } from './registrations.ts'

const managementToken = 'the registration access token'

export interface RegistrationsRpcDeps {
  readonly registrations: Registrations
  readonly clients: Pick<Clients, 'appOf'>
}

export function createRegistrationsRpc({ registrations, clients }: RegistrationsRpcDeps) {
  const registrationService: Handlers<pb.RegistrationServiceServer> = {
    registerClient: rpc(
      bearer('the initial access token'),
      async ({ metadata }: pb.RegisterClientRequest, { token }, context) => ({
        client: renderClient(await registrations.register(token, metadata, context)),
      }),
    ),
    getRegistration: rpc(
      bearer(managementToken),
      async (request: pb.GetRegistrationRequest, { token }) => ({
        client: renderClient(
          await registrations.read({ clientId: request.registeredClientId, token }),
        ),
      }),
    ),
    updateRegistration: rpc(
      bearer(managementToken),
      async (request: pb.UpdateRegistrationRequest, { token }, context) => {
        const { registeredClientId: clientId, metadata } = request
        const registration = await registrations.update({ clientId, token }, metadata, context)
        return { client: renderClient(registration) }
      },
    ),
    deleteRegistration: rpc(
      bearer(managementToken),
      async ({ registeredClientId }: pb.DeleteRegistrationRequest, { token }, context) => {
        await registrations.remove({ clientId: registeredClientId, token }, context)
        return {}
      },
    ),
  }
  return {
    registrationService,
    registrationTokenService: createTokenService(registrations, clients),
  }
}

function createTokenService(
  registrations: Registrations,
  clients: Pick<Clients, 'appOf'>,
): Handlers<pb.RegistrationTokenServiceServer> {
  return {
    createRegistrationToken: rpc(
      operatorWrite(),
      async (request: pb.CreateRegistrationTokenRequest, _, context) => {
        const app = await clients.appOf(request.clientId)
        const actor = operatorActor(context)
        const { token, ...row } = await registrations.createToken(app, request, actor)
        return { token, registrationToken: renderToken(row) }
      },
    ),
    listRegistrationTokens: rpc(operator(), async (request: pb.ListRegistrationTokensRequest) => ({
      tokens: (await registrations.listTokens(await clients.appOf(request.clientId))).map(
        renderToken,
      ),
    })),
    revokeRegistrationToken: rpc(
      operatorWrite(),
      async ({ clientId, id }: pb.RevokeRegistrationTokenRequest, _, context) => {
        await registrations.revokeToken(await clients.appOf(clientId), id, operatorActor(context))
        return {}
      },
    ),
  }
}

const renderClient = ({ clientId, metadata, createdAt, token }: Registration) => ({
  registeredClientId: clientId,
  redirectUris: [...metadata.redirectUris],
  grantTypes: [...metadata.grantTypes],
  scope: metadata.scopes.join(' '),
  clientName: metadata.name,
  clientUri: metadata.clientUri ?? undefined,
  softwareId: metadata.softwareId ?? undefined,
  softwareVersion: metadata.softwareVersion ?? undefined,
  createdAt: createdAt.toISOString(),
  registrationAccessToken: token,
})

type TokenRow = Awaited<ReturnType<Registrations['listTokens']>>[number]

const renderToken = ({ createdAt, expiresAt, revokedAt, ...row }: TokenRow) => ({
  ...row,
  createdAt: createdAt.toISOString(),
  expiresAt: expiresAt.toISOString(),
  revokedAt: revokedAt?.toISOString(),
})
