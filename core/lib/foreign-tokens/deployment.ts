import type { EnvReader } from '../env.ts'

/** The deployment's own identity provider (docs/trusted-issuers.md#the-deployments-own). */
export interface DeploymentIssuer {
  /** Without a final slash; undefined if the deployment has no provider. */
  readonly issuer: string | undefined
  /** Defaults to the issuer. */
  readonly audience: string | undefined
  /** If undefined, the discovery document provides it. */
  readonly jwksUrl: string | undefined
  /** The claim with the app's id. A token without this claim uses `client_id`. */
  readonly clientIdClaim: string
  readonly subjectClaim: string
}

/**
 * Reads the deployment's issuer; there is none if JWT_ISSUER is `ownIssuer`. Core and the sidecar
 * need the same settings.
 */
export function readDeploymentIssuer(env: EnvReader, ownIssuer: string): DeploymentIssuer {
  const issuer = env.url('JWT_ISSUER', {
    meaning:
      'A foreign OIDC issuer whose access tokens are accepted in addition to our own, for the app that they name. Core and sidecar need the same value.',
    schemes: ['http', 'https'],
  })
  return {
    issuer: issuer === ownIssuer ? undefined : issuer,
    audience: env.optional('JWT_AUDIENCE', {
      meaning: 'Audience that its tokens must have; the issuer when unset.',
    }),
    jwksUrl: env.url('JWT_JWKS_URL', {
      meaning: "Address of the foreign issuer's keys; read from its discovery document when unset.",
      schemes: ['http', 'https'],
    }),
    clientIdClaim: env.text('CLAIM_CLIENT_ID', {
      meaning:
        'Claim of its tokens that names the app; client_id, as in our own tokens, if the claim is missing.',
      fallback: 'azp',
    }),
    subjectClaim: env.text('CLAIM_USAGE_SUBJECT', {
      meaning: 'Claim that names the user.',
      fallback: 'external_user_id',
    }),
  }
}
