import { startCore } from '../../../core/app.ts'
import { readCoreConfig } from '../../../core/config.ts'
import { runProcess } from '../../../core/lib/process.ts'

/**
 * Core as in core/main.ts, with upkeep every two seconds instead of every minute, and with a clock
 * that is ahead by CORE_AHEAD_MS.
 */
const aheadMs = Number(process.env['CORE_AHEAD_MS'] ?? 0)
const now = () => new Date(Date.now() + aheadMs)
await runProcess({
  name: 'core',
  adminPort: { setting: 'CORE_ADMIN_PORT', fallback: '9464' },
  read: readCoreConfig,
  start: async (config, deps) => {
    const core = await startCore(config, {
      ...deps,
      upkeepMs: 2_000,
      ...(aheadMs > 0 && { now }),
    })
    return { ...core, summary: { grpc: core.target } }
  },
})
