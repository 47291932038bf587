import { availableParallelism } from 'node:os'
import { GrantType, TokenType } from '../../../proto/oauth.ts'
import { drive } from '../drive.ts'
import type { Bench, Finding } from '../row.ts'
import { signatures } from '../keys/signatures.ts'
import { median, pairedRatio } from '../stats.ts'
import { count as inWords } from '../table.ts'
import { type People, openPeople } from './people.ts'

// As for minted tokens (`mint.ts`): enough that core always has a signature to make.
const connections = 256

interface Door {
  readonly name: string
  readonly port: number
  readonly credentials: () => Promise<readonly string[]>
}

interface Sample {
  readonly perSecond: number
  readonly cpuUs: number
}

/**
 * Exchanges users' credentials for signer sessions over HTTP, with balance, access and an audit log
 * entry. Compares the rate with the machine's maximum rate of signatures. The service shares the
 * cores with its database and with the load.
 */
export async function tokenExchange(bench: Bench): Promise<Finding[]> {
  const [rounds, count] = bench.quick ? [4, 1_000] : [11, 4_000]
  const people = await openPeople(bench)
  const doors = doorsOf(people)
  const measure = async ({ port, credentials }: Door): Promise<Sample> => {
    const texts = await credentials()
    const requests = texts.map((text) => request(port, people.clientId, text))
    const before = await people.cpuMs()
    const perSecond = await drive({ port, requests, connections, count })
    return { perSecond, cpuUs: (((await people.cpuMs()) - before) * 1000) / count }
  }
  const signed: number[] = []
  const samples = doors.map((): Sample[] => [])
  // The first round warms up the code.
  for (let round = -1; round < rounds; round++) {
    const perSecond = await signatures(2_000)
    const exchanged: Sample[] = []
    for (const door of doors) exchanged.push(await measure(door))
    if (round < 0) continue
    signed.push(perSecond)
    exchanged.forEach((sample, door) => samples[door]?.push(sample))
  }
  return doors.flatMap(({ name }, door) => findings(name, samples[door] ?? [], signed))
}

function findings(
  name: string,
  samples: readonly Sample[],
  signed: readonly number[],
): readonly Finding[] {
  const rates = samples.map(({ perSecond }) => perSecond)
  const costs = samples.map(({ cpuUs }) => cpuUs)
  const cores = availableParallelism()
  return [
    {
      name: `${name}, by signatures`,
      unit: '',
      target: { atLeast: 0.55 },
      ...pairedRatio(rates, signed),
      detail: `${inWords(median(rates))}/s, RS256 alone ${inWords(median(signed))}/s on ${cores} cores`,
    },
    {
      name: `${name}, processor time`,
      unit: '',
      target: null,
      ...pairedRatio(
        signed.map((perSecond) => (cores * 1e6) / perSecond),
        costs,
      ),
      detail: `${median(costs).toFixed(0)} us of gateway and core for a session, signature and all`,
    },
  ]
}

function doorsOf({ deployed, keys, mintTokens }: People): Door[] {
  const { builderPort, platformPort } = deployed
  const [jwt, key] = ['exchange of a user JWT', 'exchange of a key']
  return [
    { name: `${jwt}, builder API`, port: builderPort, credentials: mintTokens },
    { name: `${key}, builder API`, port: builderPort, credentials: async () => keys },
    { name: `${jwt}, platform API`, port: platformPort, credentials: mintTokens },
  ]
}

function request(port: number, clientId: string, credential: string): Buffer {
  const form = new URLSearchParams({
    grant_type: GrantType.tokenExchange,
    subject_token: credential,
    subject_token_type: TokenType.accessToken,
  }).toString()
  return Buffer.from(
    `POST /api/v1/apps/${clientId}/oidc/token HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\n` +
      `Content-Type: application/x-www-form-urlencoded\r\nContent-Length: ${form.length}\r\n\r\n${form}`,
  )
}
