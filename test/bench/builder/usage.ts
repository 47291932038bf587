import { createPool, many } from '../../../core/lib/sql.ts'
import type { AppId, UserId } from '../../../core/shared/ids.ts'
import { generateHistory } from '../../support/usage/history.ts'
import { figure, startHelper } from '../helper.ts'
import type { Bench, Finding } from '../row.ts'
import { median, pairedRatio } from '../stats.ts'
import { count as inWords } from '../table.ts'
import { type People, openPeople } from './people.ts'

const hours = 720
const perHour = 10
const connections = 16
const perSecond = 50

/**
 * Compares the p99 of usage queries at the builder API with that of balance reads: the same users
 * and tokens, a month of usage each, the same even pace.
 */
export async function builderUsage(bench: Bench): Promise<Finding[]> {
  const [rounds, count] = bench.quick ? [4, 200] : [9, 500]
  const people = await openPeople(bench)
  await generateMonth(people)
  const { builderPort, platformPort } = people.deployed
  const usageOf = `/api/v1/apps/${people.clientId}/usage?meter=network_fee_usd_micros&groupBy=pipeline`
  const usage = await loadOf(bench, builderPort, usageOf)
  const balance = await loadOf(bench, platformPort, '/api/v1/user/usage/balance')
  const [sums, reads]: [number[], number[]] = [[], []]
  // The first rounds warm up code and pages.
  for (let round = -2; round < rounds; round++) {
    const tokens = await people.mintTokens()
    const [read, sum] = [await balance(tokens, count), await usage(tokens, count)]
    if (round < 0) continue
    reads.push(read)
    sums.push(sum)
  }
  return [
    {
      name: 'usage of the builder API by a balance, p99',
      unit: '',
      target: { atMost: 2 },
      ...pairedRatio(sums, reads),
      detail:
        `${median(sums).toFixed(1)} ms over ${inWords(hours * perHour)} tickets in ${hours} hours, ` +
        `a balance ${median(reads).toFixed(1)} ms, each at ${perSecond}/s`,
    },
  ]
}

/** Generates a month of usage for every user. */
async function generateMonth({ deployed, names }: People): Promise<void> {
  const pool = createPool({
    url: deployed.databaseUrl,
    max: 2,
    name: 'tollgate-bench',
    statementTimeoutMs: 0,
  })
  try {
    const users = await many<{ appId: AppId; userId: UserId }>(pool, {
      text: `select app_id as "appId", id as "userId" from end_users where external_user_id = any($1)`,
      values: [names],
    })
    await generateHistory(
      pool,
      users.map((user) => ({ ...user, hours, perHour })),
    )
  } finally {
    await pool.end()
  }
}

type Load = (tokens: readonly string[], count: number) => Promise<number>

/**
 * Returns a function that sends `count` requests at an even pace, with the tokens in turn, and
 * returns the p99 of their delays in milliseconds.
 */
async function loadOf(bench: Bench, port: number, path: string): Promise<Load> {
  const load = await startHelper({ program: 'load.ts', args: [] })
  bench.defer(load.stop)
  return async (tokens, count) => {
    await load.ask(tokens.map((token) => get(path, token)))
    return figure(await load.ask({ port, count, connections, perSecond }), 'p99Ms')
  }
}

const get = (path: string, token: string): string =>
  `GET ${path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer ${token}\r\n\r\n`
