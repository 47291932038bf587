import { newSecret } from '../../../core/lib/crypto.ts'
import { type CoreDouble, startCoreDouble } from '../../fakes/sidecar-core.ts'
import { type Helper, figure, startHelper } from '../helper.ts'
import type { Bench } from '../row.ts'
import { bodyOf, requestOf } from './signer-call.ts'

export const secret = newSecret('whsec_')
export const clientId = 'app_0123456789abcdef01234567'
export const connections = 64
/** Processor cores of the servers under test and of the load. */
export const [serverCore, loadCore] = [1, 0]

// More than a run can spend, so that allowed calls are measured and not refusals.
const micros = 10n ** 12n

export interface Gate {
  readonly core: CoreDouble
  readonly load: Helper
  /** Starts a sidecar that uses the double of core, on its own processor core. */
  sidecar(settings?: Readonly<Record<string, string>>, core?: number): Promise<Helper>
  /**
   * Starts a server that does a webhook's minimum and answers like the sidecar about `credential`.
   */
  bare(sidecar: Helper, credential: string): Promise<Helper>
  /** Creates keys that core knows, each for another user unless `user` is given. */
  newKeys(count: number, user?: string): string[]
}

/**
 * Starts the parts that the rows of the gate share: a double of core in this process, and a load.
 * Returns functions that start servers.
 */
export async function openGate(bench: Bench): Promise<Gate> {
  const core = await startCoreDouble()
  bench.defer(async () => core.stop())
  const start = async (program: string, args: string[], processor: number): Promise<Helper> => {
    const helper = await startHelper({ program, args, core: processor })
    bench.defer(helper.stop)
    return helper
  }
  let users = 0
  let sidecars = 0

  function newKey(user: string): string {
    const key = newSecret('svc_ak_')
    core.keys.set(key, { clientId, externalUserId: user, keyId: `key-of-${user}` })
    core.users.set(`${clientId}:${user}`, { micros })
    return key
  }

  return {
    core,
    load: await start('load.ts', [], loadCore),
    sidecar: (settings = {}, processor = serverCore) => {
      const id = `bench-${sidecars++}`
      const env = {
        CORE_TARGET: core.target,
        WEBHOOK_SECRET: secret,
        SIDECAR_ID: id,
        ...settings,
      }
      return start('sidecar-server.ts', [JSON.stringify(env)], processor)
    },
    bare: async (sidecar, credential) =>
      start('bare-server.ts', [await answerAbout(sidecar, credential)], serverCore),
    newKeys: (count, user) =>
      Array.from({ length: count }, () =>
        newKey(user ?? `user-${String(users++).padStart(7, '0')}`),
      ),
  }
}

export const requestsOf = (credentials: readonly string[]): string[] =>
  credentials.map((credential) => requestOf(secret, credential))

/** Returns the body of the answer about a credential. */
export async function answerAbout(server: Helper, credential: string): Promise<string> {
  const response = await fetch(`http://127.0.0.1:${portOf(server)}/authorize`, {
    method: 'POST',
    headers: { authorization: `Bearer ${secret}` },
    body: bodyOf(credential),
    signal: AbortSignal.timeout(5_000),
  })
  return response.text()
}

export const portOf = (server: Helper): number => figure(server.ready, 'port')

/** Counts all RPCs that the double has answered. Leaves out `verifyApiKey`, which counts keys. */
export function rpcsOf({ calls: { verifyApiKey: _keys, ...calls } }: CoreDouble): number {
  const counts: unknown[] = Object.values(calls)
  return counts.reduce<number>((sum, count) => (typeof count === 'number' ? sum + count : sum), 0)
}
