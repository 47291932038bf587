import { startCoreCheck } from '../core/lib/core-link/check.ts'
import { runProcess } from '../core/lib/process.ts'
import { currentValue } from '../core/lib/settings/reloadable.ts'
import { readSidecarConfig } from './config.ts'
import { startSidecar } from './server.ts'

await runProcess({
  name: 'sidecar',
  adminPort: { setting: 'SIDECAR_ADMIN_PORT', fallback: '9466' },
  read: readSidecarConfig,
  start: async (config, deps) => {
    if (currentValue(config.webhookSecrets).length === 0) {
      deps.log.warn('WEBHOOK_SECRET is not set: every call is refused')
    }
    const { ready, url, ...sidecar } = await startSidecar(config, deps)
    const { target } = config.core
    const call = sidecar.callCore
    const endCheck = startCoreCheck({ target, role: 'sidecar', call, log: deps.log })
    const stop = (): Promise<void> => {
      endCheck()
      return sidecar.stop()
    }
    return { ready, stop, summary: { url } }
  },
})
