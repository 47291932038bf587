import { readCollectorConfig, startCollector } from './app.ts'
import { runProcess } from '../lib/process.ts'

/** Loads what a collector runs, and ends: what was made of it is then in Node's compile cache. */
const loadOnly = '--load-only'

if (process.argv.includes(loadOnly))
  await Promise.all([
    import('../metering/collector/kafka.ts'),
    import('../platform/invalidations.ts'),
  ])
else
  await runProcess({
    name: 'collector',
    adminPort: { setting: 'COLLECTOR_ADMIN_PORT', fallback: '9093' },
    read: readCollectorConfig,
    start: startCollector,
  })
