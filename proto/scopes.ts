/**
 * Every OAuth scope, once. Guards, the lists that clients are created with, the discovery document, the consent page and
 * the sidecar's verifiers refer to these names.
 */
export const Scope = {
  openid: 'openid',
  profile: 'profile',
  email: 'email',
  offlineAccess: 'offline_access',
  signJob: 'sign:job',
  usersRead: 'users:read',
  usersWrite: 'users:write',
  usersToken: 'users:token',
  deviceApprove: 'device:approve',
  mintUserToken: 'sign:mint_user_token',
} as const
export type Scope = (typeof Scope)[keyof typeof Scope]

interface ScopeRules {
  /** The kind of OAuth client that may hold it. */
  readonly holder: 'public' | 'm2m'
  /** Whether a new client of that kind has it. */
  readonly initial: boolean
  /** Whether a plain client_credentials request may get it, even where the client's row lists it (decision 18). */
  readonly machine: boolean
  /** What the consent page says that an application may do with it. */
  readonly consent?: string
}

const table: Readonly<Record<Scope, ScopeRules>> = {
  openid: { holder: 'public', initial: true, machine: false, consent: 'Know who you are here' },
  profile: { holder: 'public', initial: false, machine: true, consent: 'See your name' },
  email: { holder: 'public', initial: false, machine: true, consent: 'See your e-mail address' },
  offline_access: {
    holder: 'public',
    initial: false,
    machine: true,
    consent: 'Keep you logged in',
  },
  'sign:job': {
    holder: 'public',
    initial: true,
    machine: false,
    consent: 'Have jobs signed and paid in your name',
  },
  'users:read': { holder: 'm2m', initial: true, machine: true },
  'users:write': { holder: 'm2m', initial: true, machine: true },
  'users:token': { holder: 'm2m', initial: true, machine: true },
  'device:approve': { holder: 'm2m', initial: true, machine: true },
  'sign:mint_user_token': { holder: 'm2m', initial: true, machine: false },
}

const every: readonly Scope[] = Object.values(Scope)
const initialOf = (holder: ScopeRules['holder']): readonly Scope[] =>
  every.filter((scope) => table[scope].holder === holder && table[scope].initial)

/** Scopes that an owner may give to the app's public client. */
export const publicVocabulary = every.filter((scope) => table[scope].holder === 'public')

/** The scopes of a new app's public client (decision 18). */
export const publicScopes = initialOf('public')

/** The scopes of a new app's M2M client (decision 18). */
export const m2mScopes = initialOf('m2m')

/** Scopes that no plain client_credentials request gets: those of sign-in, and those of another grant type. */
export const neverOfMachine: ReadonlySet<string> = new Set(
  every.filter((scope) => !table[scope].machine),
)

const consents = new Map<string, string | undefined>(
  every.map((scope) => [scope, table[scope].consent]),
)

/** What the consent page says of a scope; the scope's own name where there is no text. */
export const consentText = (scope: string): string => consents.get(scope) ?? scope
