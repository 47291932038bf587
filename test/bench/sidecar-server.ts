import { readLogLevel } from '../../core/lib/settings/shared.ts'
import { createEnvReader } from '../../core/lib/env.ts'
import { createLog } from '../../core/lib/log.ts'
import { createMetrics } from '../../core/lib/metrics.ts'
import { readSidecarConfig } from '../../sidecar/config.ts'
import { startSidecar } from '../../sidecar/server.ts'
import { answerQuestions, cpuMs } from './helper.ts'

/** Runs the real sidecar in a separate process. The argument has its settings as JSON. */
const settings: Record<string, string> = JSON.parse(process.argv[2] ?? '{}')
const reader = createEnvReader({
  SIDECAR_PORT: '0',
  CORE_TOKEN: 'core-token-of-the-benchmark-0123456789',
  ...settings,
})
const config = readSidecarConfig(reader)
if (reader.problems.length > 0) throw new Error(reader.problems.join('; '))
const metrics = createMetrics('sidecar')
const log = createLog({ level: readLogLevel(reader), name: 'sidecar', file: '/dev/null' })
const sidecar = await startSidecar(config, { log, metrics })

/** Returns the decisions so far with an identity from `source`. */
async function decisionsFrom(source: string): Promise<number> {
  const decisions = await metrics.getSingleMetric('tollgate_sidecar_decisions_total')?.get()
  return (decisions?.values ?? [])
    .filter(({ labels }) => labels['identity'] === source)
    .reduce((sum, { value }) => sum + value, 0)
}

answerQuestions({ port: sidecar.port }, async () => ({
  cpuMs: cpuMs(),
  rssMb: process.memoryUsage.rss() / 2 ** 20,
  memory: await decisionsFrom('memory'),
  cache: await decisionsFrom('redis'),
  core: await decisionsFrom('core'),
}))
