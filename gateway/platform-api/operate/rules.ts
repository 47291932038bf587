import { internalTag } from '../../http/endpoint.ts'

/** Rules of every route here: platform admins only, listed by the internal document only. */
export const operateRules = { guard: { kind: 'platform_admin' }, tags: [internalTag] } as const

export const operateUrl = '/api/v1/internal/operate'
