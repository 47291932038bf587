import type { EnvReader } from '../../lib/env.ts'
import type { Reloadable } from '../../lib/settings/reloadable.ts'

const backendNames = ['embedded', 'openmeter', 'none'] as const
export type BackendName = (typeof backendNames)[number]

export interface OpenMeterConfig {
  /** Without a trailing slash. */
  readonly url: string
  /** Absent for a self-hosted server without authentication. */
  readonly apiKey: Reloadable<string | undefined>
  readonly timeoutMs: number
  /** Maximum events per request. */
  readonly batchSize: number
}

export type BackendConfig =
  | { readonly name: 'embedded' | 'none' }
  | { readonly name: 'openmeter'; readonly openMeter: OpenMeterConfig }

/** Declares and reads the settings of the metering backend (decision 4). */
export function readBackendConfig(env: EnvReader): BackendConfig {
  const url = env.url('OPENMETER_URL', {
    schemes: ['http', 'https'],
    meaning:
      'Address of OpenMeter. If it ends in /v3, core uses API v3, otherwise the v1 API below that address.',
  })
  const apiKey = env.live(() => readApiKey(env))
  const timeoutMs = env.integer('OPENMETER_TIMEOUT_MS', {
    fallback: '10000',
    min: 100,
    max: 60_000,
    meaning: 'How long one request to OpenMeter may take, in milliseconds.',
  })
  const batchSize = env.integer('OPENMETER_BATCH_SIZE', {
    fallback: '1000',
    min: 1,
    max: 1_000,
    meaning: 'Most events in one request to OpenMeter.',
  })
  const name = env.choice('METERING_BACKEND', {
    choices: backendNames,
    fallback: url === undefined ? 'embedded' : 'openmeter',
    meaning:
      'Metering backend that reports usage in addition to the ledger: embedded (our own tables), openmeter (the default when OPENMETER_URL is set) or none.',
  })
  if (name !== 'openmeter') return { name }
  checkOpenMeter(env, url)
  return { name, openMeter: { url: url ?? '', apiKey, timeoutMs, batchSize } }
}

function readApiKey(env: EnvReader): string | undefined {
  const apiKey = env.optional('OPENMETER_API_KEY', {
    secret: true,
    meaning: 'Bearer token for OpenMeter; a self-hosted OpenMeter may not need it.',
  })
  // A header cannot carry other characters, so every request would fail.
  if (apiKey !== undefined && !/^[\x21-\x7e]+$/.test(apiKey))
    env.problem('OPENMETER_API_KEY must be visible ASCII characters')
  return apiKey
}

function checkOpenMeter(env: EnvReader, url: string | undefined): void {
  if (url === undefined && !env.problems.some((line) => line.startsWith('OPENMETER_URL'))) {
    env.problem('OPENMETER_URL is required when METERING_BACKEND is openmeter')
  }
  if (url !== undefined && hasMoreThanAddress(new URL(url))) {
    env.problem(
      'OPENMETER_URL must be an address without user, query and fragment; the key goes into OPENMETER_API_KEY',
    )
  }
}

const hasMoreThanAddress = (url: URL): boolean =>
  url.username !== '' || url.password !== '' || url.search !== '' || url.hash !== ''
