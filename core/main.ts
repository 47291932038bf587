import { runProcess } from './lib/process.ts'
import { readCoreConfig } from './config.ts'
import { startCore } from './app.ts'

await runProcess({
  name: 'core',
  adminPort: { setting: 'CORE_ADMIN_PORT', fallback: '9464' },
  read: readCoreConfig,
  start: async (config, deps) => {
    const core = await startCore(config, deps)
    return { ...core, summary: { grpc: core.target } }
  },
})
