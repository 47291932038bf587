import { TrustedIssuerServiceService } from '../../../proto/gen/ts-proto/tollgate/identity/v1/issuers.ts'
import { createIssuerKeys, providerBounds } from '../../lib/foreign-tokens/issuer-keys.ts'
import type { DeploymentIssuer } from '../../lib/foreign-tokens/deployment.ts'
import { createOutbound } from '../../lib/outbound/outbound.ts'
import type { Shared } from '../../shared/shared.ts'
import { fetchText } from '../../lib/text/fetch.ts'
import { grpcService } from '../../rpc/serve.ts'
import type { Clients } from '../apps/clients.ts'
import type { CredentialIssuer } from '../types.ts'
import type { Users } from '../users/users.ts'
import { createDeployment, deploymentTrust } from './deployment.ts'
import { createForeignTokens } from './foreign-tokens.ts'
import { createIssuers } from './issuers.ts'
import { createIssuersRpc } from './rpc.ts'
import { deleteIssuersOfApp } from './store.ts'
import { createVerification } from './verification.ts'

/** Deletes an app's trust with the app. Users have no trust to end. */
export const issuerCredentials: CredentialIssuer = {
  endOfUser: async () => [],
  endOfApp: async (db, app) => {
    await deleteIssuersOfApp(db, app)
    return []
  },
}

export interface IssuersOthers {
  readonly clients: Clients
  readonly users: Users
  readonly deploymentIssuer: DeploymentIssuer
}

/** Issuers trusted by apps, and the tokens of these issuers. */
export function createIssuersPart(
  shared: Shared,
  { clients, users, deploymentIssuer }: IssuersOthers,
) {
  const { config, now } = shared
  const outbound = createOutbound({ allow: config.outboundAllow })
  const keys = createIssuerKeys({ fetchText: outbound.fetchText, now })
  // The operator chose this URL, so it may be a private address.
  const ofDeployment = createIssuerKeys({ fetchText: (url) => fetchText(url, providerBounds), now })
  const verification = createVerification({
    ...shared,
    keysOf: ({ id }) => (id === deploymentTrust ? ofDeployment : keys),
    deployment: createDeployment({ clients, settings: deploymentIssuer }),
  })
  const foreignTokens = createForeignTokens({ verification, clients, users })
  const { trustedIssuerService } = createIssuersRpc({
    issuers: createIssuers(shared),
    foreignTokens,
    ownIssuer: config.issuer,
    revocationBoundSeconds: config.revocationBoundSeconds,
  })
  return {
    foreignTokens,
    services: [grpcService(TrustedIssuerServiceService, trustedIssuerService)],
  }
}
