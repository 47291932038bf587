import { newSecret } from '../../core/lib/crypto.ts'
import { type CoreClient, connectCore } from '../../deploy/cli/client.ts'
import { freePorts, runProcess } from '../support/deployment/processes.ts'
import type { Bench } from './row.ts'

export interface Deployed {
  readonly databaseUrl: string
  readonly operator: CoreClient
  readonly platformPort: number
  readonly builderPort: number
  readonly coreTarget: string
  readonly coreToken: string
  corePid(): number
  /** Returns the processor time so far, in milliseconds. */
  coreCpuMs(): Promise<number>
  gatewayCpuMs(): Promise<number>
}

const secret = (): string => newSecret('')

/**
 * Starts core and gateway as separate processes on a new database, as an operator runs them. `env`
 * has more settings of core.
 */
export async function startDeployed(
  bench: Bench,
  env: Readonly<Record<string, string>> = {},
): Promise<Deployed> {
  const server = await bench.server()
  const [core = 0, coreAdmin = 0, platform = 0, builder = 0, gatewayAdmin = 0] = await freePorts(5)
  const coreTarget = `127.0.0.1:${core}`
  const databaseUrl = await server.create()
  const shared = {
    CORE_PORT: String(core),
    CORE_ADMIN_PORT: String(coreAdmin),
    PLATFORM_PORT: String(platform),
    BUILDER_PORT: String(builder),
    GATEWAY_ADMIN_PORT: String(gatewayAdmin),
    CORE_TARGET: coreTarget,
    CORE_TOKEN: secret(),
    RATE_LIMITS: 'off',
  }
  const started = await runProcess({
    name: 'core',
    env: {
      ...shared,
      DATABASE_URL: databaseUrl,
      KEY_ENCRYPTION_KEY: secret(),
      SECRET_PEPPERS: `p1:${secret()}`,
      RATE_FIXED: '3000',
      ...env,
    },
  })
  bench.defer(started.stop)
  const gateway = await runProcess({ name: 'gateway', env: shared })
  bench.defer(gateway.stop)
  const operator = connectCore({ target: coreTarget, token: shared.CORE_TOKEN })
  bench.defer(async () => operator.close())
  return {
    databaseUrl,
    operator,
    platformPort: platform,
    builderPort: builder,
    coreTarget,
    coreToken: shared.CORE_TOKEN,
    corePid: started.pid,
    coreCpuMs: () => cpuMsOf(`http://127.0.0.1:${coreAdmin}`),
    gatewayCpuMs: () => cpuMsOf(`http://127.0.0.1:${gatewayAdmin}`),
  }
}

/** Returns the processor time so far of the process with metrics at `adminUrl`, in milliseconds. */
export async function cpuMsOf(adminUrl: string): Promise<number> {
  const response = await fetch(`${adminUrl}/metrics`, {
    signal: AbortSignal.timeout(5_000),
  })
  const seconds = /^process_cpu_seconds_total\{[^}]*\} ([\d.e-]+)/m.exec(await response.text())?.[1]
  if (seconds === undefined) throw new Error('a process does not tell its processor time')
  return Number(seconds) * 1000
}
