import { createEnvReader } from '../core/lib/env.ts'
import { createAdminServer, listen } from '../core/lib/http.ts'
import { createLog } from '../core/lib/log.ts'
import { createMetrics } from '../core/lib/metrics.ts'
import { readSidecarConfig } from './config.ts'
import { startSidecar } from './server.ts'

const drainMs = 500

function fail(lines: readonly string[]): never {
  process.stderr.write(lines.map((line) => `tollgate sidecar: ${line}\n`).join(''))
  process.exit(1)
}

async function main(): Promise<void> {
  const env = createEnvReader(process.env)
  const config = readSidecarConfig(env)
  const adminPort = env.port('SIDECAR_ADMIN_PORT', {
    meaning: 'Loopback port of the sidecar alone for /metrics, /healthz and /readyz.',
    fallback: '9092',
  })
  if (config.core.token === '')
    env.problem('CORE_TOKEN is required: the token that core was started with')
  if (env.problems.length > 0) fail(env.problems)

  const log = createLog({ level: config.logLevel, name: 'sidecar' })
  if (config.webhookSecrets.length === 0)
    log.warn('WEBHOOK_SECRET is not set: every call is refused')
  const metrics = createMetrics('sidecar')
  const sidecar = await startSidecar(config, { log, metrics })
  const admin = createAdminServer({ metrics: [metrics], ready: sidecar.ready })
  const adminListening = await listen(admin, {
    host: '127.0.0.1',
    port: adminPort,
    setting: 'SIDECAR_ADMIN_PORT',
  })
  log.info({ url: sidecar.url, adminUrl: adminListening.url }, 'sidecar is up')

  const stop = async (): Promise<void> => {
    await Promise.all([sidecar.stop(), adminListening.stop(drainMs)])
    process.exit(0)
  }
  process.once('SIGTERM', () => void stop())
  process.once('SIGINT', () => void stop())
}

main().catch((error: unknown) => fail([error instanceof Error ? error.message : String(error)]))
