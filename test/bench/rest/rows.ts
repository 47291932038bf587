import { randomUUID } from 'node:crypto'
import { cpuMsOf } from '../deployed.ts'
import { drive } from '../drive.ts'
import { figure } from '../helper.ts'
import type { Bench, Finding, Row } from '../row.ts'
import { median, pairedRatio } from '../stats.ts'
import { count as inWords } from '../table.ts'
import { type RestPair, openRest } from './pair.ts'

const callers = 64

interface Comparison {
  readonly name: string
  readonly atLeast: number
  /** Requests per round to each side. */
  readonly count: number
  /** Returns `count` requests to the service, and the equivalent requests to the bare server. */
  readonly requests: (pair: RestPair) => { readonly service: Requests; readonly bare: Requests }
}
type Requests = (count: number) => Buffer[]

interface Sample {
  readonly perSecond: number
  readonly cpuUs: number
}

/**
 * Compares requests per second of the all-in-one service with a bare fastify that does the same on
 * the same database, with 64 callers of one app. Also compares processor time per request, because
 * other processes may use the machine.
 */
const compare =
  ({ name, atLeast, count, requests }: Comparison): Row =>
  async (bench: Bench): Promise<Finding[]> => {
    const rounds = bench.quick ? 4 : 8
    const pair = await openRest(bench)
    const { service, bare } = requests(pair)
    const bareCpuMs = async (): Promise<number> => figure(await pair.bare.ask({}), 'cpuMs')
    const ofBare = (): Promise<Sample> =>
      sample({ port: figure(pair.bare.ready, 'port'), cpuMs: bareCpuMs, requests: bare(count) })
    const ofService = (): Promise<Sample> =>
      sample({ port: pair.port, cpuMs: () => cpuMsOf(pair.adminUrl), requests: service(count) })
    const [below, above]: [Sample[], Sample[]] = [[], []]
    // The first rounds warm up the code.
    for (let round = -2; round < rounds; round++) {
      const [one, other] = [await ofBare(), await ofService()]
      if (round < 0) continue
      below.push(one)
      above.push(other)
    }
    const rates = (samples: readonly Sample[]): number[] =>
      samples.map(({ perSecond }) => perSecond)
    const costs = (samples: readonly Sample[]): number[] => samples.map(({ cpuUs }) => cpuUs)
    const middle = (values: readonly number[]): string => inWords(median(values))
    return [
      {
        name,
        unit: '',
        target: { atLeast },
        ...pairedRatio(rates(above), rates(below)),
        detail: `${middle(rates(above))}/s, bare fastify ${middle(rates(below))}/s, ${callers} callers`,
      },
      {
        name: `${name}, processor time`,
        unit: '',
        target: null,
        ...pairedRatio(costs(below), costs(above)),
        detail: `${middle(costs(above))} us of all in one, ${middle(costs(below))} us of bare fastify`,
      },
    ]
  }

async function sample(load: {
  port: number
  requests: Buffer[]
  cpuMs: () => Promise<number>
}): Promise<Sample> {
  const { port, requests, cpuMs } = load
  const count = requests.length
  const before = await cpuMs()
  const perSecond = await drive({ port, requests, count, connections: callers })
  return { perSecond, cpuUs: (((await cpuMs()) - before) * 1000) / count }
}

const json = (value: object): string => JSON.stringify(value)
const inTurn =
  (names: readonly string[], request: (name: string) => Buffer): Requests =>
  (count) =>
    Array.from({ length: count }, (_, i) => request(names[i % names.length] ?? ''))

// Targets of users, credits and keys: three times 0.21, 0.20 and 0.25, measured when each request
// was a separate transaction and RPC. At that time balances had 0.10 and the key set 0.07.

/** A user's balance, compared with a read of one row. */
export const restBalance = compare({
  name: 'rest-balance, by bare fastify and one statement',
  atLeast: 0.25,
  count: 4_000,
  requests: ({ clientId, users, bareUsers, request }) => ({
    service: inTurn(users, (name) =>
      request(`GET /api/v1/builder/apps/${clientId}/usage/balance?externalUserId=${name}`),
    ),
    bare: inTurn(bareUsers, (id) => request(`GET /balances/${id}`)),
  }),
})

/** A new user, compared with the same inserts. */
export const restUsers = compare({
  name: 'rest-users, by bare fastify and the same inserts',
  atLeast: 0.63,
  count: 1_000,
  requests: ({ clientId, request }) => {
    const create = (path: string): Requests =>
      inTurn([''], () => request(`POST ${path}`, json({ externalUserId: randomUUID() })))
    return { service: create(`/api/v1/apps/${clientId}/users`), bare: create('/users') }
  },
})

/** A credit with an Idempotency-Key, compared with the same inserts and the same balance update. */
export const restCredits = compare({
  name: 'rest-credits, by bare fastify and the same inserts',
  atLeast: 0.6,
  count: 1_000,
  requests: ({ clientId, users, bareUsers, request }) => {
    const body = json({ amountUsdMicros: '1' })
    return {
      service: inTurn(users, (name) =>
        request(`POST /api/v1/apps/${clientId}/users/${name}/allowances`, body, randomUUID()),
      ),
      bare: inTurn(bareUsers, (id) => request(`POST /credits/${id}`, body)),
    }
  },
})

/** A new key for a user, compared with the same inserts. */
export const restKeys = compare({
  name: 'rest-keys, by bare fastify and the same inserts',
  atLeast: 0.75,
  count: 1_000,
  // At most 50 keys per user over all rounds; the limit is 100.
  requests: ({ clientId, users, request }) => {
    const body = json({ label: 'bench' })
    return {
      service: inTurn(users, (name) =>
        request(`POST /api/v1/apps/${clientId}/users/${name}/keys`, body),
      ),
      bare: inTurn([''], () => request('POST /keys', body)),
    }
  },
})

/** The key set, compared with a static answer of the same length. */
export const restStatic = compare({
  name: 'rest-static: JWKS, by a static answer of bare fastify',
  atLeast: 0.7,
  count: 20_000,
  requests: ({ request }) => ({
    service: inTurn([''], () => request('GET /api/v1/oidc/jwks')),
    bare: inTurn([''], () => request('GET /static')),
  }),
})

/** The discovery document, compared with the same static answer. */
export const restDiscovery = compare({
  name: 'rest-static: discovery, by a static answer of bare fastify',
  atLeast: 0.7,
  count: 20_000,
  requests: ({ request }) => ({
    service: inTurn([''], () => request('GET /.well-known/openid-configuration')),
    bare: inTurn([''], () => request('GET /static')),
  }),
})
