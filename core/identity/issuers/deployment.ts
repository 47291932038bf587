import type { DeploymentIssuer } from '../../lib/foreign-tokens/deployment.ts'
import { type UnprovedToken, readIssuer, readScopes } from '../../lib/foreign-tokens/form.ts'
import { readText } from '../../lib/json.ts'
import { slashForms } from '../../lib/text/urls.ts'
import { isClientId } from '../../shared/ids.ts'
import { Scope } from '../../../proto/scopes.ts'
import type { Clients } from '../apps/clients.ts'
import type { AppIssuer } from './store.ts'

/** Id of the trust that comes from the settings and has no row. */
export const deploymentTrust = 'deployment'

export interface DeploymentDeps {
  readonly clients: Pick<Clients, 'findPublic'>
  readonly settings: DeploymentIssuer
}

/**
 * Every app's trust in the deployment's own provider. Its tokens carry the id of their app
 * (docs/decisions/39.md).
 */
export function createDeployment({ clients, settings }: DeploymentDeps) {
  const { issuer, jwksUrl, clientIdClaim, subjectClaim } = settings
  const audience = settings.audience ?? issuer ?? ''
  const audiences = [...new Set(slashForms(audience))]

  /**
   * Returns the trust of the app `clientId`, by default of the app that the token names. Returns
   * null for another issuer's token, and when there is no such app.
   */
  async function trustFor(
    token: UnprovedToken,
    clientId: string | null,
  ): Promise<AppIssuer | null> {
    if (issuer === undefined || readIssuer(token) !== issuer) return null
    const clientClaim = readText(token.claims[clientIdClaim]) === '' ? 'client_id' : clientIdClaim
    const named = clientId ?? readText(token.claims[clientClaim])
    if (!isClientId(named)) return null
    const client = await clients.findPublic(named)
    if (!client) return null
    return {
      id: deploymentTrust,
      generation: 1,
      appId: client.appId,
      clientId: named,
      issuer,
      audiences,
      clientClaim,
      clientValues: [named],
      userClaim: subjectClaim,
      userPrefix: '',
      jwksUri: jwksUrl ?? null,
      createdAt: new Date(0),
      updatedAt: new Date(0),
    }
  }

  return { trustFor }
}

export type Deployment = ReturnType<typeof createDeployment>

/**
 * Whether the trust lets the token sign. An app that trusts an issuer permits its users to sign;
 * under the deployment's trust the token needs the scope.
 */
export const maySign = (token: UnprovedToken, { id }: AppIssuer): boolean =>
  id !== deploymentTrust || readScopes(token.claims).includes(Scope.signJob)
