import { basic } from '../../../deploy/cli/client.ts'
import { type Deployed, startDeployed } from '../deployed.ts'
import type { Bench } from '../row.ts'

const userCount = 100

/** Users of one app, each with a key and a token; core and gateway run as separate processes. */
export interface People {
  readonly deployed: Deployed
  readonly clientId: string
  readonly names: readonly string[]
  /** API keys as the builder API returns them. */
  readonly keys: readonly string[]
  /** Mints new user JWTs, which are valid for only five minutes. */
  mintTokens(): Promise<string[]>
  /** Returns the processor time of core and gateway so far, in milliseconds. */
  cpuMs(): Promise<number>
}

const all = new WeakMap<Bench, Promise<People>>()

/** Returns the people of this run; the first call creates them. */
export function openPeople(bench: Bench): Promise<People> {
  const people = all.get(bench) ?? start(bench)
  all.set(bench, people)
  return people
}

async function start(bench: Bench): Promise<People> {
  const deployed = await startDeployed(bench)
  const { operator, platformPort, builderPort, coreCpuMs, gatewayCpuMs } = deployed
  const { clientId, m2mClientId, m2mClientSecret } = await operator.apps.createApp({
    name: 'Bench',
    ownerEmail: undefined,
    ownerPassword: undefined,
    starterUsdMicros: undefined,
  })
  const authorization = basic(m2mClientId, m2mClientSecret)
  const post = async (port: number, path: string, body: object = {}) => {
    const response = await fetch(`http://127.0.0.1:${port}/api/v1/apps/${clientId}${path}`, {
      method: 'POST',
      headers: { authorization, 'content-type': 'application/json' },
      body: JSON.stringify(body),
      signal: AbortSignal.timeout(10_000),
    })
    const text = await response.text()
    if (!response.ok) throw new Error(`${path}: ${text}`)
    const answer: { apiKey?: string; access_token?: string } = JSON.parse(text)
    return answer
  }
  const names = Array.from({ length: userCount }, (_, i) => `user-${String(i).padStart(4, '0')}`)
  const keys: string[] = []
  for (const externalUserId of names)
    keys.push((await post(builderPort, '/users', { externalUserId })).apiKey ?? '')
  const mint = async (name: string): Promise<string> =>
    (await post(platformPort, `/users/${name}/token`)).access_token ?? ''
  return {
    deployed,
    clientId,
    names,
    keys,
    mintTokens: () => Promise.all(names.map(mint)),
    cpuMs: async () => (await coreCpuMs()) + (await gatewayCpuMs()),
  }
}
