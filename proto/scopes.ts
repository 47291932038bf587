/** Scopes that an owner may give the public client: those of sign-in, and the one of signing. */
export const publicVocabulary = [
  'openid',
  'profile',
  'email',
  'offline_access',
  'sign:job',
] as const

/** What an M2M client has (decision 18). */
export const m2mScopes = [
  'users:read',
  'users:write',
  'users:token',
  'device:approve',
  'sign:mint_user_token',
] as const
