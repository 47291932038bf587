/** Kinds of mails, and how many of them an address gets. */

export const mailKinds = [
  'password_reset',
  'sign_up',
  'invitation',
  'new_device',
  'password_changed',
  'balance_low',
  'balance_gone',
  'access_lost',
  'payment_failed',
  'secret_expiring',
  'webhook_disabled',
] as const
export type MailKind = (typeof mailKinds)[number]

interface Bound {
  /** Kinds that share the bound. */
  readonly kinds: readonly MailKind[]
  readonly max: number
  readonly seconds: number
}

const hour = 3_600
const day = 24 * hour

const notices = [
  'balance_low',
  'balance_gone',
  'access_lost',
  'payment_failed',
  'webhook_disabled',
] as const

// A stranger can cause most of these mails; the bound is what the person must put up with.
const bounds: readonly Bound[] = [
  { kinds: ['password_reset'], max: 5, seconds: hour },
  { kinds: ['sign_up'], max: 5, seconds: hour },
  { kinds: ['invitation'], max: 10, seconds: day },
  { kinds: ['new_device'], max: 10, seconds: day },
  { kinds: ['password_changed'], max: 20, seconds: day },
  // Of their own, so that many secrets do not take the place of news about money.
  { kinds: ['secret_expiring'], max: 20, seconds: day },
  { kinds: notices, max: 20, seconds: day },
]

export const findBound = (kind: MailKind): Bound =>
  bounds.find(({ kinds }) => kinds.includes(kind)) ?? { kinds: [kind], max: 10, seconds: day }

/** Kinds that a stranger can cause for any address; each has a bound for the whole deployment. */
const linkKinds: readonly MailKind[] = ['password_reset', 'sign_up']
export const linkSeconds = hour

export const isLink = (kind: MailKind): boolean => linkKinds.includes(kind)

/** Core gives up after this time, unless the content is out of date sooner. */
export const lifetimeSeconds = day
/** Rows are deleted after this time. */
export const keptSeconds = 30 * day
