import type { SeededApp } from './seed.ts'

/** The rights of each role in the seeded app: controls of views, and requests. */

/** From the least to the most. */
export const roles = ['stranger', 'viewer', 'admin', 'owner', 'platform admin'] as const
export type Role = (typeof roles)[number]

export const may = (role: Role, least: Role): boolean => roles.indexOf(role) >= roles.indexOf(least)

export interface Control {
  /** The name of its view. */
  readonly view: string
  readonly kind: 'button' | 'link' | 'textbox' | 'combobox' | 'region'
  readonly name: string | RegExp
  readonly least: Role
}

const list = (at: Omit<Control, 'name'>, ...names: Control['name'][]): Control[] =>
  names.map((name) => ({ ...at, name }))

/** Controls by role. A view lacks the controls of higher roles. */
export const controls: readonly Control[] = [
  ...list({ view: 'overview', kind: 'link', least: 'admin' }, 'Audit log'),
  ...list(
    { view: 'overview', kind: 'link', least: 'platform admin' },
    'Quarantine',
    'Configuration',
  ),
  ...list({ view: 'users', kind: 'button', least: 'admin' }, 'Create'),
  ...list(
    { view: 'user', kind: 'button', least: 'admin' },
    'Give credit',
    'Deactivate',
    'Change the plan',
  ),
  ...list(
    { view: 'user-keys', kind: 'button', least: 'admin' },
    'Create a key',
    /^Revoke the key/,
    /^End the signer session/,
  ),
  ...list(
    { view: 'user-limits', kind: 'button', least: 'admin' },
    'Save limits',
    'Remove all limits',
  ),
  ...list({ view: 'money', kind: 'button', least: 'owner' }, 'Pay for all users', 'Disconnect'),
  ...list({ view: 'money', kind: 'region', least: 'platform admin' }, 'The platform’s terms'),
  ...list({ view: 'money-of-user', kind: 'button', least: 'admin' }, 'Collect now'),
  ...list({ view: 'plans', kind: 'link', least: 'admin' }, 'New plan', /^Edit /),
  ...list({ view: 'plans', kind: 'button', least: 'admin' }, /^Delete /),
  ...list({ view: 'plan', kind: 'textbox', least: 'admin' }, 'Name'),
  ...list({ view: 'webhooks', kind: 'button', least: 'admin' }, 'Add'),
  ...list(
    { view: 'webhook', kind: 'button', least: 'admin' },
    'Send a test event',
    'Disable',
    'Delete',
  ),
  ...list(
    { view: 'settings', kind: 'button', least: 'admin' },
    'Save',
    'New secret',
    'Save addresses',
    'Trust',
  ),
  ...list({ view: 'settings', kind: 'button', least: 'owner' }, 'Delete the app'),
  ...list({ view: 'team', kind: 'button', least: 'admin' }, 'Invite', /^Remove editor@/),
  ...list({ view: 'team', kind: 'button', least: 'owner' }, /^Remove owner@/),
  ...list(
    { view: 'setup', kind: 'button', least: 'owner' },
    'Make a secret for a signer of your own',
  ),
  ...list({ view: 'audit', kind: 'link', least: 'admin' }, /^Export/),
  ...list({ view: 'new-app', kind: 'button', least: 'platform admin' }, 'Create the app'),
]

interface Request {
  readonly method: string
  readonly path: string
  readonly body?: object
  readonly least: Role
}

/** Returns requests that are refused to every lower role. */
export function listRequests({ clientId, endpointId, invoiceId, ...app }: SeededApp): Request[] {
  const own = `/api/v1/apps/${clientId}`
  const users = `/api/v1/internal/apps/${clientId}/users`
  const user = `${users}/${encodeURIComponent(app.externalUserId)}`
  const operate = '/api/v1/internal/operate'
  const to = (least: Role, rows: readonly (readonly [string, string, object?])[]): Request[] =>
    rows.map(([method, path, body]) => ({ method, path, least, ...(body && { body }) }))
  return [
    ...to('viewer', [
      ['GET', `${own}/admins`],
      ['GET', `${own}/billing/invoices`],
      ['GET', users],
    ]),
    ...to('admin', [
      ['POST', users, { externalUserId: 'x' }],
      ['POST', `${user}/allowances`, { amountUsdMicros: '1' }],
      ['POST', `${user}/keys`, {}],
      ['DELETE', `${user}/signer-sessions?sessionId=x`],
      ['PUT', `${user}/limits`, { callsPerMinute: 1 }],
      ['PUT', own, { name: 'Other' }],
      ['PUT', `${own}/admins`, { email: 'x@example.com', role: 'viewer' }],
      ['POST', `${own}/plans`, { name: 'Gift', type: 'free' }],
      ['DELETE', `${own}/webhook-endpoints/${endpointId}`],
      ['POST', `${own}/credentials?target=m2m`],
      ['POST', `${own}/billing/invoices/${invoiceId}/void`, { reason: 'x' }],
      ['POST', `${own}/billing/collect`, {}],
      ['GET', `${own}/audit`],
    ]),
    ...to('owner', [
      ['GET', `${own}/signer-secrets`],
      ['PUT', `${own}/admins`, { email: 'x@example.com', role: 'owner' }],
      ['PUT', `${own}/billing/settings`, { billingMode: 'owner_rollup' }],
      ['DELETE', own],
    ]),
    ...to('platform admin', [
      ['PUT', `${own}/billing/settings`, { endUserCap: 5 }],
      ['GET', `${operate}/quarantine`],
      ['GET', `${operate}/apps`],
      ['GET', `${operate}/ingest`],
      ['GET', `${operate}/test-clocks`],
      ['GET', `${operate}/configuration`],
      ['POST', `${operate}/signing-keys/rotate`, {}],
      ['POST', '/api/v1/apps', { name: 'x' }],
    ]),
  ]
}
