import { createEnvReader } from '../../core/lib/env.ts'
import { createLog } from '../../core/lib/log.ts'
import { createMetrics } from '../../core/lib/metrics.ts'
import { readSidecarConfig } from '../../sidecar/config.ts'
import { startSidecar } from '../../sidecar/server.ts'
import { answerQuestions, cpuMs } from './helper.ts'

/**
 * The real sidecar alone in a process. Its core, the secret of its signer and, where
 * it has one, the folder of its spool are its arguments.
 */
const [target = '', secret = '', spool] = process.argv.slice(2)
const reader = createEnvReader({
  SIDECAR_PORT: '0',
  CORE_TARGET: target,
  CORE_TOKEN: 'core-token-of-the-benchmark-0123456789',
  WEBHOOK_SECRET: secret,
  // The longest that may be set: a round must not meet an entry that has run out.
  ACCESS_TTL_SECONDS: '60',
  IDENTITY_TTL_SECONDS: '3600',
  SPOOL_DIR: spool,
})
const config = readSidecarConfig(reader)
if (reader.problems.length > 0) throw new Error(reader.problems.join('; '))
const metrics = createMetrics('sidecar')
const log = createLog({ level: config.logLevel, name: 'sidecar', file: '/dev/null' })
const sidecar = await startSidecar(config, { log, metrics })

/** Decisions that allowed, from memory alone. */
async function fromMemory(): Promise<number> {
  const decisions = await metrics.getSingleMetric('tollgate_sidecar_decisions_total')?.get()
  const row = decisions?.values.find(
    ({ labels }) => labels['decision'] === 'ok' && labels['source'] === 'memory',
  )
  return row?.value ?? 0
}

answerQuestions({ port: sidecar.port }, async () => ({
  cpuMs: cpuMs(),
  fromMemory: await fromMemory(),
}))
