/**
 * All OAuth scopes. Guards, the lists that clients are created with, the discovery document, the
 * consent page and the sidecar's verifiers use these names.
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
  /** The kind of OAuth client that may hold the scope. */
  readonly holder: 'public' | 'm2m'
  /** Whether a new client of that kind has the scope. */
  readonly initial: boolean
  /**
   * Whether a plain client_credentials request may get the scope. If false, it may not even if the
   * client's row lists the scope (decision 18).
   */
  readonly machine: boolean
  /** Text on the consent page: what the scope lets an application do. */
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

/**
 * Scopes that plain client_credentials requests never get: those of sign-in, and those of another
 * grant type.
 */
export const neverOfMachine: ReadonlySet<string> = new Set(
  every.filter((scope) => !table[scope].machine),
)

const consents = new Map<string, string | undefined>(
  every.map((scope) => [scope, table[scope].consent]),
)

/** The consent page's text for a scope; without a text, the scope's name. */
export const consentText = (scope: string): string => consents.get(scope) ?? scope
