import type { EnvReader } from '../core/lib/env.ts'
import { mergeParts } from '../core/lib/http.ts'
import { runProcess, settlesWithin } from '../core/lib/process.ts'
import { readSidecarConfig } from '../sidecar/config.ts'
import { startSidecar } from '../sidecar/server.ts'
import { readGatewayConfig } from './config.ts'
import { startGateway } from './server.ts'

// The embedded webhook is a sidecar in this process. A sidecar always opens a listener; this one gets any free port on
// loopback, which nobody calls.
const loopback = { host: '127.0.0.1', port: 0 }
const headStartMs = 1_000

await runProcess({
  name: 'gateway',
  adminPort: { setting: 'GATEWAY_ADMIN_PORT', fallback: '9465' },
  read: (env: EnvReader) => ({
    gateway: readGatewayConfig(env),
    // Without it a gateway needs neither the settings of a sidecar nor its token.
    sidecar: process.env['WEBHOOK_SECRET'] ? readSidecarConfig(env) : undefined,
  }),
  start: async ({ gateway: config, sidecar: settings }, deps) => {
    const sidecar =
      settings &&
      (await startSidecar({ ...settings, listen: { ...settings.listen, ...loopback } }, deps))
    const gateway = await startGateway(config, { ...deps, webhook: sidecar?.webhook })
    return {
      ready: async () => mergeParts(await Promise.all([gateway.ready(), sidecar?.ready() ?? {}])),
      stop: async () => {
        const drained = gateway.stop()
        // Requests that the gateway still answers need the sidecar, so it stops later, but does not wait for a stalled upload.
        await Promise.all([
          drained,
          settlesWithin(drained, headStartMs).then(() => sidecar?.stop()),
        ])
      },
      summary: { platform: gateway.platformUrl, builder: gateway.builderUrl },
    }
  },
})
