import { startCoreCheck } from '../core/lib/core-link/check.ts'
import type { EnvReader } from '../core/lib/env.ts'
import { mergeParts } from '../core/lib/http.ts'
import { runProcess, settlesWithin } from '../core/lib/process.ts'
import { readSidecarConfig } from '../sidecar/config.ts'
import { startSidecar } from '../sidecar/server.ts'
import { readGatewayConfig } from './config.ts'
import { startGateway } from './server.ts'

// The embedded webhook is a sidecar in this process. A sidecar always opens a listener; this one
// gets a free port on loopback that is never called.
const loopback = { host: '127.0.0.1', port: 0 }
const headStartMs = 1_000

await runProcess({
  name: 'gateway',
  adminPort: { setting: 'GATEWAY_ADMIN_PORT', fallback: '9465' },
  read: (env: EnvReader) => ({
    gateway: readGatewayConfig(env),
    // Without WEBHOOK_SECRET a gateway needs neither the sidecar's settings nor its token.
    sidecar: env.isSet('WEBHOOK_SECRET') ? readSidecarConfig(env) : undefined,
  }),
  start: async ({ gateway: config, sidecar: settings }, deps) => {
    const sidecar =
      settings &&
      (await startSidecar({ ...settings, listen: { ...settings.listen, ...loopback } }, deps))
    const gateway = await startGateway(config, {
      ...deps,
      webhook: sidecar?.webhook,
      webhookSecrets: settings?.webhookSecrets,
    })
    const { target } = config.core
    const call = gateway.callCore
    const endCheck = startCoreCheck({ target, role: 'gateway', call, log: deps.log })
    return {
      ready: async () => mergeParts(await Promise.all([gateway.ready(), sidecar?.ready() ?? {}])),
      stop: async () => {
        endCheck()
        const drained = gateway.stop()
        // The sidecar stops later, because requests that the gateway still answers need it. It does
        // not wait for a stalled upload.
        await Promise.all([
          drained,
          settlesWithin(drained, headStartMs).then(() => sidecar?.stop()),
        ])
      },
      summary: { platform: gateway.platformUrl, builder: gateway.builderUrl },
    }
  },
})
