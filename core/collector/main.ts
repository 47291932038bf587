import { readCollectorConfig, startCollector } from './app.ts'
import { runProcess } from '../lib/process.ts'

/**
 * Loads all modules of a collector and exits, which fills Node's compile cache for the next start.
 */
const loadOnly = '--load-only'

if (process.argv.includes(loadOnly))
  await Promise.all([import('../metering/collector/kafka.ts'), import('../lib/redis.ts')])
else
  await runProcess({
    name: 'collector',
    adminPort: { setting: 'COLLECTOR_ADMIN_PORT', fallback: '9467' },
    read: readCollectorConfig,
    start: startCollector,
  })
