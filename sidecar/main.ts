import { runProcess } from '../core/lib/process.ts'
import { readSidecarConfig } from './config.ts'
import { startSidecar } from './server.ts'

await runProcess({
  name: 'sidecar',
  adminPort: { setting: 'SIDECAR_ADMIN_PORT', fallback: '9466' },
  read: readSidecarConfig,
  start: async (config, deps) => {
    if (config.webhookSecrets.length === 0) {
      deps.log.warn('WEBHOOK_SECRET is not set: every call is refused')
    }
    const sidecar = await startSidecar(config, deps)
    return { ready: sidecar.ready, stop: sidecar.stop, summary: { url: sidecar.url } }
  },
})
