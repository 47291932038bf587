import { Type } from 'typebox'
import { textMember } from '../http/body.ts'
import type { App, ListenerDeps } from '../http/listener.ts'
import type { LoginProviderConfig } from '../login-config.ts'
import { pageRoutes } from '../pages/pages.ts'
import { route } from '../http/route.ts'
import { allowanceRoutes } from './users/allowances.ts'
import { appKeyRoutes } from './keys/app-keys.ts'
import { appRoutes } from './apps/apps.ts'
import { catalogRoutes } from './catalog.ts'
import { collectDocuments, documentRoutes } from './docs/docs.ts'
import { endUserRoutes } from './users/end-user.ts'
import { goneRoutes } from './gone.ts'
import { ingestRoutes } from './ingest.ts'
import { keyRoutes } from './keys/keys.ts'
import { memberRoutes } from './apps/members.ts'
import { oidcRoutes } from './oidc/oidc.ts'
import { settingRoutes } from './apps/settings.ts'
import { tokenRoutes } from './users/tokens.ts'
import { usageRoutes } from './usage/usage.ts'
import { usageLossRoutes } from './usage/loss.ts'
import { usageHistoryRoutes } from './usage/history.ts'
import { usageStreamRoutes } from './usage/stream.ts'
import { userRoutes } from './users/users.ts'
import { validateRoutes } from './keys/validate.ts'
import { type Webhook, webhookRoutes } from './signer/webhook.ts'

export interface PlatformDeps extends ListenerDeps {
  /** Of the tokens that core signs. */
  readonly tokenAlg: string
  readonly webhook?: Webhook | undefined
  readonly loginProvider?: LoginProviderConfig | undefined
  readonly validateV2?: boolean | undefined
  readonly ingestSecret?: string | undefined
}

const rules = { guard: { kind: 'none' } } as const

/** Everything at the platform listener (surface B). */
export async function platformRoutes(app: App, deps: PlatformDeps): Promise<void> {
  const { publicUrl, webhook } = deps
  await collectDocuments(app, publicUrl)
  app.addHook('onRequest', async (request, reply) => {
    const { successor, deprecated } = request.routeOptions.config.rules ?? {}
    if (deprecated) void reply.header('deprecation', 'true')
    if (successor === undefined) return
    const path = successor.replace(/:([A-Za-z]+)/g, (_, name: string) =>
      encodeURIComponent(textMember(request.params, name) ?? ''),
    )
    const link = `<${publicUrl}${path}>; rel="successor-version"`
    void reply.header('deprecation', 'true').header('link', link)
  })
  app.get(
    '/health',
    route(rules, {
      summary: 'Whether the process answers',
      tags: ['service'],
      response: { 200: Type.Object({ status: Type.String() }) },
    }),
    async () => ({ status: 'ok' }),
  )
  await documentRoutes(app, deps)
  oidcRoutes(app, deps)
  userRoutes(app)
  tokenRoutes(app)
  keyRoutes(app)
  allowanceRoutes(app)
  usageRoutes(app)
  usageLossRoutes(app)
  usageHistoryRoutes(app)
  usageStreamRoutes(app)
  endUserRoutes(app)
  appRoutes(app)
  memberRoutes(app)
  settingRoutes(app)
  catalogRoutes(app)
  appKeyRoutes(app)
  validateRoutes(app, deps)
  goneRoutes(app)
  ingestRoutes(app, deps)
  await pageRoutes(app, deps)
  if (webhook) webhookRoutes(app, webhook, deps)
}
