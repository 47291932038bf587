/** Groups of operations by role, in the order in which an integrator needs them. */

const roles: readonly (readonly [tag: string, description: string])[] = [
  ['users', 'Integrator: create, list and deactivate users'],
  ['keys', 'Integrator: keys of users, and their validation'],
  ['tokens', 'Integrator: tokens for users, and the exchange of keys'],
  ['signer', 'Integrator: signer sessions; operator: secrets and the webhook of signers'],
  ['usage', 'Integrator: usage, balances, tickets and receipts'],
  ['allowances', 'Integrator: credit of users'],
  ['limits', 'Integrator: limits of users and keys'],
  ['end user', 'End user: own usage, with a user token'],
  ['plans', 'App owner: plans, and subscriptions of users'],
  ['billing', 'App owner: bills, statements, the payment processor'],
  ['apps', 'App owner: apps, members, credentials, domains, audit'],
  ['webhooks', 'App owner: endpoints that receive events, and the log of deliveries'],
  ['catalog', 'App owner: pipelines and models'],
  ['session', 'App owner: the session of the dashboard'],
  ['oidc', 'Every role: the OpenID Connect issuer'],
  ['service', 'Every role: documents, errors, health'],
  ['removed', 'Removed routes: each answers 410 and names its replacement'],
]

export const platformTags = roles.map(([name, description]) => ({ name, description }))

/** Shown above the operations, which the links open. */
export const firstSteps = `## First: a user, a key, a token

1. [Create a user](#/users/upsertUser): \`POST /api/v1/apps/{clientId}/users\` with \`externalUserId\`, as the M2M client (HTTP Basic).
2. [Create a key](#/keys/createKey): \`POST /api/v1/apps/{clientId}/users/{externalUserId}/keys\`. Its secret is shown once.
3. [Get a token](#/tokens/exchangeApiKey): \`POST /api/v1/apps/{clientId}/auth/api-key/token\` with the key as Bearer. The token lives for five minutes.

Then [exchange it for a signer session](#/signer/exchangeForSignerSession) and read [what was used](#/usage/getUsage).`
