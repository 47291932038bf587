import type { DeploymentIssuer } from '../../lib/foreign-tokens/deployment.ts'
import { type UnprovedToken, issuerOf, scopesOf } from '../../lib/foreign-tokens/form.ts'
import { textOf } from '../../lib/json.ts'
import { slashForms } from '../../lib/text/urls.ts'
import { isClientId } from '../../platform/ids.ts'
import { Scope } from '../../../proto/scopes.ts'
import type { Clients } from '../apps/clients.ts'
import type { AppIssuer } from './store.ts'

/** The id of the trust that is no row: that of the settings. */
export const deploymentTrust = 'deployment'

export interface DeploymentDeps {
  readonly clients: Pick<Clients, 'findPublic'>
  readonly settings: DeploymentIssuer
}

/** The trust of every app in the deployment's own provider, whose tokens carry the id of their app (docs/decisions/39.md). */
export function createDeployment({ clients, settings }: DeploymentDeps) {
  const { issuer, jwksUrl, clientIdClaim, subjectClaim } = settings
  const audience = settings.audience ?? issuer ?? ''
  const audiences = [...new Set(slashForms(audience))]

  /** The trust of the app `clientId`, or of the one that the token names; null for a token of another issuer, and without such an app. */
  async function trustFor(
    token: UnprovedToken,
    clientId: string | null,
  ): Promise<AppIssuer | null> {
    if (issuer === undefined || issuerOf(token) !== issuer) return null
    const clientClaim = textOf(token.claims[clientIdClaim]) === '' ? 'client_id' : clientIdClaim
    const named = clientId ?? textOf(token.claims[clientClaim])
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

/** Whether a token of that trust needs no scope, or has it: an app that trusts an issuer permits its users to sign, a setting does not. */
export const maySign = (token: UnprovedToken, { id }: AppIssuer): boolean =>
  id !== deploymentTrust || scopesOf(token.claims).includes(Scope.signJob)
