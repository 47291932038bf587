import { Type } from 'typebox'
import type { RouteRules } from '../route.ts'

export interface PagesDeps {
  readonly publicUrl: string
}

const none = { kind: 'none' } as const

// Pages are for people; the document is about the API, so it does not show them.
export const pageRoute = (): { config: { rules: RouteRules }; schema: { hide: true } } =>
  ({ config: { rules: { guard: none } }, schema: { hide: true } })

export const formRoute = () => ({
  config: { rules: { guard: none, body: 'form', limit: 'login' } satisfies RouteRules },
  schema: { hide: true, body: Type.Record(Type.String(), Type.String()) },
})
