import { Type } from 'typebox'
import type { LoginProviderConfig } from '../login-config.ts'
import type { RouteRules } from '../http/route.ts'

export interface PagesDeps {
  readonly publicUrl: string
  readonly loginProvider?: LoginProviderConfig | undefined
}

/** Absolute; core ends an idle session sooner (decision 10). */
export const sessionMaxAge = 90 * 86_400

const none = { kind: 'none' } as const

// Pages are for people; the document is about the API, so it does not show them.
export const pageRoute = (): { config: { rules: RouteRules }; schema: { hide: true } } => ({
  config: { rules: { guard: none } },
  schema: { hide: true },
})

export const formRoute = () => ({
  config: { rules: { guard: none, body: 'form', limit: 'login' } satisfies RouteRules },
  schema: { hide: true, body: Type.Record(Type.String(), Type.String()) },
})
