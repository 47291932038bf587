import {
  type Client,
  type ClientUnaryCall,
  Metadata,
  type ServiceError,
  credentials,
} from '@grpc/grpc-js'
import { serviceTokenHeader } from '../../../proto/headers.ts'
import { basic } from '../../../deploy/cli/client.ts'
import { SignerServiceClient } from '../../../proto/gen/ts-proto/tollgate/signer/v1/signer.ts'
import { startDeployed } from '../deployed.ts'
import type { Bench, Finding } from '../row.ts'
import { median, pairedRatio } from '../stats.ts'
import { count } from '../table.ts'

const keyCount = 200
// Enough that core always has work.
const inFlight = 128

type Callback = (error: ServiceError | null) => void
type Ask = (n: number, done: Callback) => ClientUnaryCall

interface Sample {
  readonly cpuUs: number
  readonly perSecond: number
}

/**
 * Compares key verifications, by the RPC that a sidecar calls for an unknown key, with calls of the
 * same server that do nothing: the health check. Both use one client, one connection and the same
 * number of open calls. The processor time of the server's process is shown in addition.
 */
export async function apiKeyVerify(bench: Bench): Promise<Finding[]> {
  const rounds = bench.quick ? 5 : 11
  const calls = bench.quick ? 3_000 : 5_000
  const { verify, check, cpuMs } = await prepare(bench)
  const measure = async (ask: Ask): Promise<Sample> => {
    const before = await cpuMs()
    const perSecond = await rate(ask, calls)
    return { cpuUs: (((await cpuMs()) - before) * 1000) / calls, perSecond }
  }
  for (const ask of [check, verify]) await measure(ask)
  const [verified, empty]: [Sample[], Sample[]] = [[], []]
  for (let round = 0; round < rounds; round++) {
    empty.push(await measure(check))
    verified.push(await measure(verify))
  }
  return findings(verified, empty)
}

function findings(verified: readonly Sample[], empty: readonly Sample[]): Finding[] {
  const cpu = (samples: readonly Sample[]): number[] => samples.map(({ cpuUs }) => cpuUs)
  const rates = (samples: readonly Sample[]): number[] => samples.map(({ perSecond }) => perSecond)
  return [
    {
      name: 'api-key verification over gRPC, by empty calls',
      unit: '',
      target: { atLeast: 0.7 },
      ...pairedRatio(rates(verified), rates(empty)),
      detail: `${count(median(rates(verified)))}/s, empty ${count(median(rates(empty)))}/s`,
    },
    {
      name: 'api-key verification over gRPC, processor time',
      unit: '',
      target: null,
      ...pairedRatio(cpu(empty), cpu(verified)),
      detail: `${median(cpu(verified)).toFixed(0)} us a call, empty ${median(cpu(empty)).toFixed(0)} us`,
    },
  ]
}

/** Returns calls per second. */
async function rate(ask: Ask, calls: number): Promise<number> {
  const { promise, resolve, reject } = Promise.withResolvers<void>()
  let sent = 0
  let answered = 0
  const next = (): void => {
    ask(sent++, (error) => {
      if (error) return reject(error)
      if (++answered === calls) resolve()
      else if (sent < calls) next()
    })
  }
  const started = performance.now()
  for (let i = 0; i < inFlight; i++) next()
  await promise
  return calls / ((performance.now() - started) / 1000)
}

interface Parts {
  readonly verify: Ask
  readonly check: Ask
  cpuMs(): Promise<number>
}

async function prepare(bench: Bench): Promise<Parts> {
  const { operator, platformPort, coreTarget, coreToken, coreCpuMs } = await startDeployed(bench)
  const app = await operator.apps.createApp({
    name: 'Bench',
    ownerEmail: undefined,
    ownerPassword: undefined,
    starterUsdMicros: undefined,
  })
  const platform = `http://127.0.0.1:${platformPort}/api/v1/apps/${app.clientId}/users`
  const authorization = basic(app.m2mClientId, app.m2mClientSecret)
  const keys: string[] = []
  for (let i = 0; i < keyCount; i++) {
    const name = `user-${i}`
    await post(platform, authorization, { externalUserId: name })
    keys.push((await post(`${platform}/${name}/keys`, authorization, {})).apiKey ?? '')
  }
  const client = new SignerServiceClient(coreTarget, credentials.createInsecure())
  bench.defer(async () => client.close())
  const metadata = new Metadata()
  metadata.set(serviceTokenHeader, coreToken)
  return {
    verify: (n, done) =>
      client.verifyApiKey({ apiKey: keys[n % keys.length] ?? '' }, metadata, done),
    check: (_, done) => checkHealth(client, metadata, done),
    cpuMs: coreCpuMs,
  }
}

// HealthCheckRequest without a service; the response is ignored (grpc.health.v1).
const nothing = Buffer.alloc(0)
const checkHealth = (client: Client, metadata: Metadata, done: Callback): ClientUnaryCall =>
  client.makeUnaryRequest(
    '/grpc.health.v1.Health/Check',
    () => nothing,
    (bytes) => bytes,
    nothing,
    metadata,
    done,
  )

async function post(
  url: string,
  authorization: string,
  json: object,
): Promise<{ apiKey?: string }> {
  const response = await fetch(url, {
    method: 'POST',
    headers: { authorization, 'content-type': 'application/json' },
    body: JSON.stringify(json),
    signal: AbortSignal.timeout(5_000),
  })
  const text = await response.text()
  if (!response.ok) throw new Error(`${url}: ${text}`)
  const answer: { apiKey?: string } = JSON.parse(text)
  return answer
}
