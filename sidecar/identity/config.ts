import type { EnvReader } from '../../core/lib/env.ts'
import { readDeploymentIssuer } from '../../core/lib/foreign-tokens/deployment.ts'
import type { Reloadable } from '../../core/lib/settings/reloadable.ts'
import { readPublicUrl } from '../../core/lib/settings/shared.ts'
import { issuerPath } from '../../proto/headers.ts'

const modes = ['api_key', 'oidc', 'composite', 'trusted_headers'] as const
const custom = /^custom:(.+)$/

export type AuthMode = (typeof modes)[number] | 'custom'

/** How long a verified token may be cached: as long as a key, but a minute at most. */
export const rememberTokensSeconds = (ttlSeconds: number): number => Math.min(60, ttlSeconds)

/** How end users are verified, and which issuers' tokens are accepted. */
export function readIdentity(env: EnvReader) {
  const ownIssuer = readPublicUrl(env) + issuerPath
  const { mode, module } = readMode(env)
  const proxySecret: Reloadable<string> = env.live(() => readProxySecret(env, mode), Boolean)
  return {
    mode,
    module,
    ownIssuer,
    ...readDeploymentIssuer(env, ownIssuer),
    proxySecret,
    ttlSeconds: env.integer('IDENTITY_TTL_SECONDS', {
      meaning:
        'How long a verified key is cached. If the notice of a revocation is lost, the key still works this long.',
      fallback: '300',
      min: 1,
      max: 3600,
    }),
  } as const
}

export type IdentityConfig = ReturnType<typeof readIdentity>

/** Returns the secret of the reverse proxy; empty if there is none. */
function readProxySecret(env: EnvReader, mode: AuthMode): string {
  const proxySecret = env.optional('TRUSTED_PROXY_SECRET', {
    meaning:
      'Secret that a reverse proxy sends as X-Livepeer-Proxy-Secret with the identity in its headers, in the modes trusted_headers and composite; at least 32 characters.',
    secret: true,
  })
  if (mode === 'trusted_headers' && proxySecret === undefined)
    env.problem('TRUSTED_PROXY_SECRET of at least 32 characters is needed for trusted_headers')
  else if (proxySecret !== undefined && proxySecret.length < 32)
    env.problem('TRUSTED_PROXY_SECRET must have at least 32 characters')
  return proxySecret ?? ''
}

function readMode(env: EnvReader): { mode: AuthMode; module: string | undefined } {
  const text = env.text('IDENTITY_AUTH_MODE', {
    meaning: `How end users are verified: ${modes.join(', ')} or custom:<module>.`,
    fallback: 'composite',
  })
  const module = custom.exec(text)?.[1]
  if (module !== undefined) return { mode: 'custom', module }
  const mode = modes.find((name) => name === text)
  if (!mode) env.problem(`IDENTITY_AUTH_MODE must be one of ${modes.join(', ')} or custom:<module>`)
  return { mode: mode ?? 'composite', module }
}
