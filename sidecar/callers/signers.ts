import { createHmac, timingSafeEqual } from 'node:crypto'
import type { Log } from '../../core/lib/log.ts'
import type { Metrics } from '../../core/lib/metrics.ts'
import { startLoop } from '../../core/lib/loop.ts'
import type { Now } from '../../core/lib/time.ts'
import type { SignerSecret } from '../../proto/gen/ts-proto/tollgate/signer/v1/signers.ts'
import type { CoreClient } from '../core/client.ts'

/** Public ids of the apps that a signer signs for; null for all. */
export type Apps = ReadonlySet<string> | null
export type Purpose = 'decisions' | 'events'

export interface SignersOptions {
  readonly core: Pick<CoreClient, 'listSignerSecrets'>
  readonly now: Now
  readonly log: Log
  readonly metrics: Metrics
}

interface KnownSecret extends SignerSecret {
  readonly apps: Apps
}

const pauseMs = 10_000
const form = /^svc_sg_([0-9a-f]{12})_/

/**
 * The signers in core's database, reloaded every ten seconds. While core is unavailable, the last
 * known ones stay valid.
 */
export function createSigners({ core, now, log, metrics }: SignersOptions) {
  let secretsById = new Map<string, KnownSecret>()

  async function refresh(): Promise<void> {
    const secrets = await core.listSignerSecrets()
    const appsOf = ({ allApps, clientIds }: SignerSecret): Apps =>
      allApps ? null : new Set(clientIds)
    secretsById = new Map(secrets.map((secret) => [secret.id, { ...secret, apps: appsOf(secret) }]))
  }

  /**
   * Returns the signer with this secret; undefined if the secret is unknown, ended, or for another
   * purpose.
   */
  function signerOf(text: string, purpose: Purpose): { readonly apps: Apps } | undefined {
    const secret = secretsById.get(form.exec(text)?.[1] ?? '')
    if (!secret || secret.purpose !== purpose) return undefined
    const endsAt = Number(secret.endsAt)
    if (endsAt !== 0 && endsAt * 1000 <= now().getTime()) return undefined
    const hash = createHmac('sha256', secret.key).update(text).digest()
    return timingSafeEqual(hash, secret.hash) ? secret : undefined
  }

  const loop = startLoop({ name: 'signers', log, metrics, pauseMs, round: refresh })
  /** Reloads now. If that fails, the next round repeats it. */
  const refreshSoon = (): void => void refresh().catch(() => undefined)
  return { signerOf, refreshSoon, stop: loop.stop }
}

export type Signers = ReturnType<typeof createSigners>
