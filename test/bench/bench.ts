import { cpus, totalmem } from 'node:os'
import { parseArgs } from 'node:util'
import { ablate, readAblations } from './ablate.ts'
import { compareWithPeer } from './gate/beside.ts'
import { authorizeForeign } from './gate/foreign.ts'
import { authorizeMemory } from './gate/memory.ts'
import { authorizeMisses } from './gate/misses.ts'
import { paidCall } from './gate/paid-call.ts'
import { reserve } from './gate/reserve.ts'
import { behindSigner } from './gate/signer.ts'
import { authorizeScale } from './gate/scale.ts'
import { twoAccounts } from './money/two-accounts.ts'
import { authorizeWarm } from './gate/warm.ts'
import { tokenExchange } from './builder/exchange.ts'
import { builderUsage } from './builder/usage.ts'
import { balanceRead } from './money/balance.ts'
import { billingSummary } from './money/billing-summary.ts'
import { type History, makeHistory } from './money/history.ts'
import { citus } from './ingest/citus.ts'
import { ingest } from './ingest/ingest.ts'
import { ingestPlans } from './ingest/plans.ts'
import { latency } from './ingest/latency.ts'
import { busyMemory, idleMemory } from './memory.ts'
import { collectorMemory } from './ingest/memory-collector.ts'
import { type Million, collectMillion } from './ingest/million.ts'
import { dashboardFeel } from './dashboard/feel.ts'
import { userTokenMint } from './keys/mint.ts'
import { planList } from './money/plan-list.ts'
import {
  restBalance,
  restCredits,
  restDiscovery,
  restKeys,
  restStatic,
  restUsers,
} from './rest/rows.ts'
import { renewals } from './money/renewals.ts'
import { revocation } from './keys/revocation.ts'
import { type Bench, type Finding, type Row, isMet } from './row.ts'
import { type Server, openServer } from './server.ts'
import { spool } from './ingest/spool.ts'
import { startup } from './startup.ts'
import { table } from './table.ts'
import { apiKeyVerify } from './keys/verify-key.ts'
import { usageMonth } from './money/usage.ts'
import { verifyBooks } from './money/verify.ts'
import { walletRead } from './money/wallet.ts'
import { monthEnd } from './collection/month-end.ts'
import { webhookIntake } from './collection/webhooks.ts'
import { whatIf } from './money/whatif.ts'

/**
 * `npm run bench`: measures ratios to baselines, in short alternating rounds, because absolute
 * figures depend more on the machine than on the program. Exits with 1 if a target is missed.
 */
const rows: Readonly<Record<string, Row>> = {
  'paid-call': paidCall,
  'authorize-warm': authorizeWarm,
  'authorize-foreign': authorizeForeign,
  'two-accounts': twoAccounts,
  'authorize-beside': compareWithPeer,
  'authorize-misses': authorizeMisses,
  'authorize-scale': authorizeScale,
  'authorize-memory': authorizeMemory,
  'behind-signer': behindSigner,
  reserve,
  ingest,
  'ingest-plans': ingestPlans,
  citus,
  spool,
  latency,
  'balance-read': balanceRead,
  'rest-balance': restBalance,
  'rest-users': restUsers,
  'rest-credits': restCredits,
  'rest-keys': restKeys,
  'rest-static': restStatic,
  'rest-discovery': restDiscovery,
  'user-token-mint': userTokenMint,
  'token-exchange': tokenExchange,
  'builder-usage': builderUsage,
  'api-key-verify': apiKeyVerify,
  revocation,
  renewals,
  'usage-month': usageMonth,
  'billing-summary': billingSummary,
  'plan-list': planList,
  'wallet-read': walletRead,
  'webhook-intake': webhookIntake,
  'month-end': monthEnd,
  verify: verifyBooks,
  whatif: whatIf,
  dashboard: dashboardFeel,
  'memory-collector': collectorMemory,
  'memory-idle': idleMemory,
  'memory-all-in-one': busyMemory,
  'start-up': startup,
}

const usage = `npm run bench -- [--quick] [--report-only] [--profile] [--only NAME]...
npm run bench -- [--quick] --ablate [PATCH]
  --ablate compares the rows of a trick for speed with and without it; without PATCH, it lists them.
  --profile prints where the time of paid-call goes, for each step by process and by table.
  NAME is one of ${Object.keys(rows).join(', ')}
  BENCH_DATABASE_URL (or TEST_DATABASE_URL) names a PostgreSQL to run on; the embedded one otherwise.
  BENCH_KAFKA_BROKERS (or TEST_KAFKA_BROKERS) names a Kafka, BENCH_REDIS_URL (or TEST_REDIS_URL)
  a Redis, CITUS_URL the coordinator of a Citus cluster with two workers, TEST_CHROMIUM the program of
  Chromium; rows that need one are left out otherwise.
`

const stops: (() => Promise<void>)[] = []
let stopping: Promise<void> | null = null

/**
 * Stops everything that was started, in reverse order. A failed stop does not prevent the others.
 */
function stopAll(): Promise<void> {
  stopping ??= (async () => {
    for (const stop of stops.toReversed())
      await stop().catch((error: unknown) => say(`not stopped: ${String(error)}`))
  })()
  return stopping
}

const say = (line: string): void => void process.stdout.write(`${line}\n`)

interface BenchOptions {
  readonly quick: boolean
  readonly profile: boolean
  readonly databaseUrl: string | undefined
  readonly kafka: readonly string[] | null
  readonly redis: string | null
  readonly citus: string | null
  readonly chromium: string | null
}

function createBench({ databaseUrl, ...options }: BenchOptions): Bench {
  let server: Promise<Server> | null = null
  let million: Promise<Million> | null = null
  let history: Promise<History> | null = null
  const defer = (stop: () => Promise<void>): void => void stops.push(stop)
  const openOnce = async (): Promise<Server> => {
    const opened = await openServer(databaseUrl)
    defer(opened.stop)
    return opened
  }
  const parts = { ...options, defer, say, server: () => (server ??= openOnce()) }
  return {
    ...parts,
    million: () => (million ??= collectMillion(parts)),
    history: () => (history ??= makeHistory(parts)),
  }
}

async function describeMachine(bench: Bench): Promise<string> {
  const { version, kind } = await bench.server()
  const [cpu] = cpus()
  return (
    `${cpus().length} cores (${cpu?.model.trim() ?? 'unknown'}), ${Math.round(totalmem() / 2 ** 30)} GiB, ` +
    `${process.platform}-${process.arch}, Node ${process.version}, PostgreSQL ${version} ${kind}`
  )
}

async function run(bench: Bench, names: readonly string[]): Promise<Finding[]> {
  const findings: Finding[] = []
  for (const name of names) {
    const started = performance.now()
    findings.push(...((await rows[name]?.(bench).catch(failure(name))) ?? []))
    say(`${name}: ${((performance.now() - started) / 1000).toFixed(0)} s`)
  }
  return findings
}

// A row that fails counts as missed; other rows keep their figures.
const failure =
  (name: string) =>
  (error: unknown): Finding[] => {
    process.stderr.write(`${error instanceof Error ? error.stack : String(error)}\n`)
    const detail = error instanceof Error ? error.message.slice(0, 200) : String(error)
    return [{ name, value: NaN, unit: '', spread: null, target: { atLeast: 0 }, detail }]
  }

/** Sends the findings to the process that started this one, if that is an ablation. */
async function report(findings: readonly Finding[]): Promise<void> {
  if (!process.send) return
  const { promise, resolve } = Promise.withResolvers<unknown>()
  process.send(findings, undefined, undefined, resolve)
  await promise
}

/** Compares the rows of a trick with and without it, or lists the tricks. */
async function runAblation(name: string | undefined, quick: boolean): Promise<number> {
  const ablations = readAblations()
  const chosen = ablations.find((ablation) => ablation.name === name)
  if (chosen) {
    say(`${chosen.name}, without: ${chosen.plain}`)
    say(`\n${table(await ablate(chosen, { quick, say }))}`)
    return 0
  }
  for (const { name, rows, plain } of ablations) say(`${name} (${rows.join(', ')}): ${plain}`)
  return name === undefined ? 0 : 2
}

async function main(): Promise<number> {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      ablate: { type: 'boolean', default: false },
      quick: { type: 'boolean', default: false },
      profile: { type: 'boolean', default: false },
      'report-only': { type: 'boolean', default: false },
      only: { type: 'string', multiple: true },
      help: { type: 'boolean', default: false },
    },
  })
  if (values.ablate) return runAblation(positionals[0], values.quick)
  const names = values.only ?? Object.keys(rows)
  if (values.help || positionals.length > 0 || names.some((name) => !(name in rows))) {
    process.stderr.write(usage)
    return values.help ? 0 : 2
  }
  const { BENCH_DATABASE_URL, TEST_DATABASE_URL, BENCH_KAFKA_BROKERS, TEST_KAFKA_BROKERS } =
    process.env
  const { BENCH_REDIS_URL, TEST_REDIS_URL, CITUS_URL, TEST_CHROMIUM } = process.env
  const bench = createBench({
    quick: values.quick,
    profile: values.profile,
    databaseUrl: BENCH_DATABASE_URL || TEST_DATABASE_URL || undefined,
    kafka: (BENCH_KAFKA_BROKERS || TEST_KAFKA_BROKERS)?.split(',') ?? null,
    redis: BENCH_REDIS_URL || TEST_REDIS_URL || null,
    citus: CITUS_URL || null,
    chromium: TEST_CHROMIUM || null,
  })
  say(await describeMachine(bench))
  const findings = await run(bench, names)
  say(`\n${table(findings)}`)
  await report(findings)
  const missed = findings.filter((finding) => !isMet(finding))
  if (missed.length > 0) say(`\nmissed: ${missed.map(({ name }) => name).join('; ')}`)
  return missed.length > 0 && !values['report-only'] ? 1 : 0
}

for (const signal of ['SIGINT', 'SIGTERM'] as const) {
  process.once(signal, () => void stopAll().finally(() => process.exit(130)))
}
const code = await main().catch((error: unknown) => {
  process.stderr.write(`${error instanceof Error ? error.stack : String(error)}\n`)
  return 1
})
await stopAll()
process.exit(code)
