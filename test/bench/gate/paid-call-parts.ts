import { createPool, type Pool } from '../../../core/lib/sql.ts'
import { newSecret } from '../../../core/lib/crypto.ts'
import { basic } from '../../../deploy/cli/client.ts'
import { type RunningProcess, freePorts, runProcess } from '../../support/deployment/processes.ts'
import { startDeployed, type Deployed } from '../deployed.ts'
import { type Helper, startHelper } from '../helper.ts'
import { parentOf, postgresMs, processMs } from '../processor-time.ts'
import type { Bench } from '../row.ts'
import { loadCore, serverCore } from './parts.ts'
import type { Payer } from './paid-call-session.ts'

/** Atto-dollars per wei at RATE_FIXED. */
export const attosPerWei = 3_000n
const usersAtOnce = 32

/** Processor time so far by kind of process, in milliseconds. */
export type Usage = ReadonlyMap<string, number>

export interface Circle {
  readonly secret: string
  readonly load: Helper
  readonly pool: Pool
  readonly operator: Deployed['operator']
  readonly payers: readonly Payer[]
  readonly sidecar: Sidecar
  /** Starts a second sidecar. */
  secondSidecar(): Promise<Sidecar>
  sidecars(): readonly Sidecar[]
  usage(): Usage
}

export interface Sidecar extends RunningProcess {
  readonly port: number
}

/** Starts all processes of a paid call except Kafka: signers push their events. */
export async function openCircle(bench: Bench, userCount: number): Promise<Circle> {
  const deployed = await startDeployed(bench)
  const secret = newSecret('whsec_')
  const pool = createPool({
    url: deployed.databaseUrl,
    max: 1,
    name: 'tollgate-bench',
    statementTimeoutMs: 60_000,
  })
  pool.on('error', () => undefined)
  bench.defer(() => pool.end())
  const payers = await createPayers(deployed, userCount)
  const load = await startHelper({ program: 'gate/paid-call-load.ts', args: [], core: loadCore })
  bench.defer(load.stop)
  const sidecars: Sidecar[] = []
  const startSidecar = async (): Promise<Sidecar> => {
    const sidecar = await newSidecar(bench, { deployed, secret, id: `bench-${sidecars.length}` })
    sidecars.push(sidecar)
    return sidecar
  }
  const sidecar = await startSidecar()
  const { rows } = await pool.query<{ pid: number }>('select pg_backend_pid() as pid')
  const ownBackend = rows[0]?.pid ?? 0
  const postmaster = parentOf(ownBackend)
  const usage = (): Usage =>
    new Map([
      ['sidecar', sidecars.reduce((sum, { pid }) => sum + processMs(pid()), 0)],
      ['core', processMs(deployed.corePid())],
      ...[...postgresMs(postmaster, ownBackend)].map(
        ([kind, ms]) => [`PostgreSQL ${kind}`, ms] as const,
      ),
    ])
  const { operator } = deployed
  return {
    secret,
    load,
    pool,
    operator,
    payers,
    sidecar,
    secondSidecar: startSidecar,
    sidecars: () => sidecars,
    usage,
  }
}

interface SidecarParts {
  readonly deployed: Deployed
  readonly secret: string
  readonly id: string
}

async function newSidecar(bench: Bench, { deployed, secret, id }: SidecarParts): Promise<Sidecar> {
  const [port = 0, admin = 0] = await freePorts(2)
  const running = await runProcess({
    name: 'sidecar',
    env: {
      SIDECAR_ID: id,
      SIDECAR_PORT: String(port),
      SIDECAR_ADMIN_PORT: String(admin),
      CORE_TARGET: deployed.coreTarget,
      CORE_TOKEN: deployed.coreToken,
      WEBHOOK_SECRET: secret,
    },
    wrap: ['taskset', '--cpu-list', String(serverCore)],
  })
  bench.defer(running.stop)
  return { ...running, port }
}

/** Creates users in a new app, each with a key and more money than a run can spend. */
async function createPayers(
  { operator, platformPort }: Deployed,
  count: number,
): Promise<readonly Payer[]> {
  const app = await operator.apps.createApp({
    name: 'Bench',
    ownerEmail: undefined,
    ownerPassword: undefined,
    starterUsdMicros: String(10n ** 12n),
  })
  const users = `http://127.0.0.1:${platformPort}/api/v1/apps/${app.clientId}/users`
  const authorization = basic(app.m2mClientId, app.m2mClientSecret)
  const payers: Payer[] = []
  const create = async (name: string): Promise<void> => {
    await post(users, authorization, { externalUserId: name })
    const { apiKey = '' } = await post(`${users}/${name}/keys`, authorization, {})
    payers.push({ credential: apiKey, authId: `${app.clientId}:${name}` })
  }
  const names = Array.from({ length: count }, (_, i) => `user-${String(i).padStart(5, '0')}`)
  const createAll = async (): Promise<void> => {
    for (let name = names.pop(); name; name = names.pop()) await create(name)
  }
  await Promise.all(Array.from({ length: usersAtOnce }, createAll))
  return payers
}

export async function post(
  url: string,
  authorization: string,
  json: object,
): Promise<{ apiKey?: string }> {
  const response = await fetch(url, {
    method: 'POST',
    headers: { authorization, 'content-type': 'application/json' },
    body: JSON.stringify(json),
    signal: AbortSignal.timeout(20_000),
  })
  const text = await response.text()
  if (!response.ok) throw new Error(`${url}: ${text}`)
  const answer: { apiKey?: string } = JSON.parse(text)
  return answer
}

/** Returns the time used since `before`, in microseconds per call. */
export const usedUs = (before: Usage, now: Usage, calls: number): Map<string, number> =>
  new Map([...now].map(([kind, ms]) => [kind, ((ms - (before.get(kind) ?? 0)) * 1000) / calls]))

/** Returns the sum without the kinds in `except`. */
export const totalOf = (used: Usage, ...except: readonly string[]): number =>
  [...used].reduce((sum, [kind, us]) => (except.includes(kind) ? sum : sum + us), 0)
