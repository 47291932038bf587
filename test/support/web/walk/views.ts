import type { SeededApp } from './seed.ts'

/** The least right with which a person sees the view: `person` is any account. */
export type Access = 'person' | 'member' | 'editor' | 'platform admin'

export interface View {
  readonly name: string
  /** Below /app. */
  readonly path: string
  readonly access: Access
  /** The seeded texts that it shows. */
  readonly texts: readonly Place[]
}

/** The places into which a tenant or a stranger writes a text. */
export const places = [
  'app',
  'developer',
  'user',
  'key',
  'model',
  'session',
  'webhook note',
  'webhook answer',
  'issuer claim',
  'audience',
  'member',
  'reason of a credit note',
  'event',
  'reason of a discard',
] as const
export type Place = (typeof places)[number]

const list = (
  access: Access,
  views: Readonly<Record<string, readonly [path: string, ...texts: Place[]]>>,
): View[] =>
  Object.entries(views).map(([name, [path, ...texts]]) => ({ name, path, access, texts }))

/** Returns every view of the dashboard, with the texts of the seeded app that it shows. */
export function listViews(app: SeededApp): View[] {
  const { clientId, planId, endpointId, invoiceId, noteId, eventId } = app
  const id = `/${clientId}`
  const user = `${id}/users/${encodeURIComponent(app.externalUserId)}`
  return [
    ...list('person', {
      apps: ['', 'app'],
      'new-app': ['/new'],
      'logged-in': ['/logged-in'],
      'my-apps': ['/me'],
    }),
    ...list('member', {
      overview: [id, 'app', 'model', 'user'],
      usage: [`${id}/usage`, 'model'],
      'usage-sessions': [`${id}/usage?by=session`, 'session'],
      users: [`${id}/users`, 'user'],
      user: [user, 'user'],
      'user-statement': [`${user}?part=statement`],
      'user-keys': [`${user}?part=keys`, 'key'],
      'user-limits': [`${user}?part=limits`, 'key'],
      'user-usage': [`${user}?part=usage`, 'model'],
      'user-sessions': [`${user}?part=usage&by=session`, 'session'],
      'user-ticket': [`${user}?part=usage&ticket=${eventId}`, 'model'],
      'user-decisions': [`${user}?part=decisions`],
      invoices: [`${id}/invoices?payer=users`, 'user'],
      invoice: [`${id}/invoices/${invoiceId}`, 'user'],
      'credit-note': [`${id}/invoices/${noteId}`, 'reason of a credit note'],
      money: [`${id}/money`],
      'money-of-user': [`${id}/money?user=${encodeURIComponent(app.externalUserId)}`, 'user'],
      payments: [`${id}/money/payments`],
      plans: [`${id}/plans`],
      'plan-versions': [`${id}/plans/${planId}/versions`],
      receipts: [`${id}/receipts?ticket=${eventId}`],
      webhooks: [`${id}/webhooks`, 'webhook note'],
      webhook: [`${id}/webhooks/${endpointId}`, 'webhook answer'],
      settings: [`${id}/settings`, 'app', 'developer', 'issuer claim', 'audience'],
      team: [`${id}/team`, 'member'],
      setup: [`${id}/setup`, 'app'],
    }),
    ...list('editor', {
      'plan-new': [`${id}/plans/new`],
      plan: [`${id}/plans/${planId}`, 'model'],
      audit: [`${id}/audit`, 'app'],
    }),
    ...listOperateViews(app),
  ]
}

/** Returns the views for platform admins. */
export const listOperateViews = ({
  clientId,
  quarantineId,
}: Pick<SeededApp, 'clientId' | 'quarantineId'>): View[] =>
  list('platform admin', {
    quarantine: ['/operate/quarantine'],
    discarded: ['/operate/quarantine?status=discarded', 'reason of a discard'],
    quarantined: [`/operate/quarantine/${quarantineId}`, 'event', 'reason of a discard'],
    'all-apps': ['/operate/apps', 'app'],
    quotas: [`/operate/apps/${clientId}`, 'app'],
    ingest: ['/operate/ingest'],
    catalogue: ['/operate/catalogue'],
    holds: ['/operate/holds'],
    losses: ['/operate/losses'],
    differences: ['/operate/differences?all=true'],
    checks: ['/operate/checks'],
    'test-clocks': ['/operate/test-clocks', 'app'],
    signers: ['/operate/signers'],
    'signing-keys': ['/operate/signing-keys'],
    configuration: ['/operate/configuration'],
  })

/** Returns the views of the person who is a user of the seeded app. */
export const listOwnViews = ({ clientId }: SeededApp): View[] =>
  list('person', {
    'my-apps': ['/me', 'app'],
    'my-app': [`/me/${clientId}`, 'app', 'model'],
    'my-access': [`/me/${clientId}?part=access`, 'key'],
    'my-payments': [`/me/${clientId}?part=payments`],
  })
