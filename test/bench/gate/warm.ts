import { newSecret } from '../../core/lib/crypto.ts'
import { startCoreDouble } from '../fakes/sidecar-core.ts'
import { type Helper, figure, startHelper } from './helper.ts'
import type { Bench, Finding } from './row.ts'
import { median, pairedRatio } from './stats.ts'
import { count } from './table.ts'

const secret = newSecret('whsec_')
const clientId = 'app_0123456789abcdef01234567'
const keyCount = 10_000
const connections = 64

interface Sample {
  readonly cpuUs: number
  readonly perSecond: number
  readonly loadShare: number
}

/**
 * Warm decisions of the real sidecar by a server that only reads, parses and answers. What is
 * compared is the processor time that the *server's* process takes for a request: it says how many
 * requests a core can answer, and hardly moves when others use the machine, while requests per
 * second share two cores with the load itself and with whatever else runs. These are shown beside
 * it.
 */
export async function authorizeWarm(bench: Bench): Promise<Finding[]> {
  const keys = Array.from({ length: keyCount }, () => newSecret('svc_ak_'))
  const core = await startCoreDouble()
  bench.defer(async () => core.stop())
  keys.forEach((key, i) => {
    const externalUserId = `user-${String(i).padStart(5, '0')}`
    core.keys.set(key, { clientId, externalUserId, keyId: `key-${i}` })
    core.users.set(`${clientId}:${externalUserId}`, { micros: 10n ** 12n })
  })
  const sidecar = await start(bench, 'sidecar-server.ts', [core.target, secret])
  const bare = await start(bench, 'bare-server.ts', [await sampleAnswer(sidecar, keys[0] ?? '')])
  const load = await start(bench, 'load.ts', [])
  await load.ask(keys.map(requestOf))
  return compare({ bench, bare, sidecar, load })
}

async function start(bench: Bench, program: string, args: string[]): Promise<Helper> {
  const helper = await startHelper({ program, args })
  bench.defer(helper.stop)
  return helper
}

interface Parts {
  readonly bench: Bench
  readonly bare: Helper
  readonly sidecar: Helper
  readonly load: Helper
}

async function compare({ bench, bare, sidecar, load }: Parts): Promise<Finding[]> {
  // All rounds end before the first access runs out, which is after sixty seconds.
  const rounds = bench.quick ? 5 : 8
  const requests = 3 * keyCount
  await measure(load, sidecar, keyCount)
  for (const server of [bare, sidecar]) await measure(load, server, requests)
  const baseline: Sample[] = []
  const subject: Sample[] = []
  const before = figure(await sidecar.ask({}), 'fromMemory')
  for (let round = 0; round < rounds; round++) {
    baseline.push(await measure(load, bare, requests))
    subject.push(await measure(load, sidecar, requests))
  }
  const hits = figure(await sidecar.ask({}), 'fromMemory') - before
  // On a busy machine a round may outlive an access of sixty seconds; a few of those change
  // nothing.
  if (hits < rounds * requests * 0.99)
    throw new Error(`only ${hits} of ${rounds * requests} decisions came from memory`)
  return findings(baseline, subject)
}

async function measure(load: Helper, server: Helper, requests: number): Promise<Sample> {
  const before = figure(await server.ask({}), 'cpuMs')
  const run = await load.ask({ port: figure(server.ready, 'port'), count: requests, connections })
  const used = figure(await server.ask({}), 'cpuMs') - before
  const seconds = figure(run, 'seconds')
  return {
    cpuUs: (used * 1000) / requests,
    perSecond: requests / seconds,
    loadShare: figure(run, 'cpuMs') / 1000 / seconds,
  }
}

function findings(baseline: readonly Sample[], subject: readonly Sample[]): Finding[] {
  const [bareCpu, cpu] = [
    baseline.map((sample) => sample.cpuUs),
    subject.map((sample) => sample.cpuUs),
  ]
  const [bareRate, rate] = [
    baseline.map((sample) => sample.perSecond),
    subject.map((sample) => sample.perSecond),
  ]
  const share = Math.round(
    100 * median([...baseline, ...subject].map((sample) => sample.loadShare)),
  )
  return [
    {
      name: 'authorize-warm, processor time',
      unit: '',
      target: { atLeast: 0.7 },
      ...pairedRatio(bareCpu, cpu),
      detail: `${median(cpu).toFixed(1)} us a request, bare ${median(bareCpu).toFixed(1)} us`,
    },
    {
      name: 'authorize-warm, throughput',
      unit: '',
      target: null,
      ...pairedRatio(rate, bareRate),
      detail: `${count(median(rate))}/s, bare ${count(median(bareRate))}/s; the load had ${share} % of a core`,
    },
  ]
}

async function sampleAnswer(sidecar: Helper, key: string): Promise<string> {
  const response = await fetch(`http://127.0.0.1:${figure(sidecar.ready, 'port')}/authorize`, {
    method: 'POST',
    headers: { authorization: `Bearer ${secret}` },
    body: bodyOf(key),
    signal: AbortSignal.timeout(5_000),
  })
  const answer = await response.text()
  if (!answer.startsWith('{"status":200')) throw new Error(`the sidecar refuses: ${answer}`)
  return answer
}

function requestOf(key: string): string {
  const body = bodyOf(key)
  return (
    'POST /authorize HTTP/1.1\r\nHost: 127.0.0.1:8090\r\nUser-Agent: Go-http-client/1.1\r\n' +
    `Content-Length: ${Buffer.byteLength(body)}\r\nAuthorization: Bearer ${secret}\r\n` +
    `Content-Type: application/json\r\nAccept-Encoding: gzip\r\n\r\n${body}`
  )
}

/** The first call of a live session, as the signer writes it (docs/signer-protocol.md). */
const bodyOf = (key: string): string =>
  JSON.stringify({
    headers: {
      Accept: ['application/json'],
      'Accept-Encoding': ['identity'],
      Authorization: [`Bearer ${key}`],
      Connection: ['close'],
      'Content-Length': ['1184'],
      'Content-Type': ['application/json'],
      'User-Agent': ['livepeer-python-gateway/0.1'],
    },
    state: {
      StateID: '9f86d081',
      PMSessionID: '0x2b1f6c0e5d7a49a8b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d5e6f7081920',
      LastUpdate: '2026-09-14T10:15:30.123456789Z',
      OrchestratorAddress: '0x5be44e23041e93cdf9bcd5a0968524e104e38ae1',
      App: 'acme/echo',
      AuthExpiry: 0,
      SenderNonce: 1,
      Balance: '49999999880000',
      InitialPricePerUnit: 12_000,
      InitialPixelsPerUnit: 1,
      Type: 'live',
      SequenceNumber: 0,
      AuthID: '',
    },
  })
