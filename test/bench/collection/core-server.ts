import { startCore } from '../../../core/app.ts'
import { readCoreConfig } from '../../../core/config.ts'
import { createEnvReader } from '../../../core/lib/env.ts'
import { silentLog } from '../../../core/lib/log.ts'
import { createMetrics } from '../../../core/lib/metrics.ts'
import { answerQuestions, cpuMs } from '../helper.ts'

/**
 * Runs core in a separate process, with a clock that a question can put ahead. The argument has its
 * settings as JSON.
 */
const settings: Record<string, string> = JSON.parse(process.argv[2] ?? '{}')
const reader = createEnvReader(settings)
const config = readCoreConfig(reader)
if (reader.problems.length > 0) throw new Error(reader.problems.join('; '))
let aheadMs = 0
const core = await startCore(config, {
  log: silentLog(),
  metrics: createMetrics('core'),
  now: () => new Date(Date.now() + aheadMs),
  // Periods are entered by upkeep, which must not wait for a minute to pass.
  upkeepMs: 1_000,
})

answerQuestions({ port: core.port }, async (question) => {
  if (typeof question === 'object' && question !== null && 'aheadMs' in question)
    aheadMs = Number(question.aheadMs)
  return { cpuMs: cpuMs(), peakRssMb: process.resourceUsage().maxRSS / 1024 }
})
