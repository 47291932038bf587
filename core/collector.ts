import { readCollectorConfig, startCollector } from './collector-app.ts'
import { runProcess } from './lib/process.ts'

await runProcess({
  name: 'collector',
  adminPort: { setting: 'COLLECTOR_ADMIN_PORT', fallback: '9093' },
  read: readCollectorConfig,
  start: startCollector,
})
