import { createPool } from '../../../core/lib/sql.ts'
import { basic } from '../../../deploy/cli/client.ts'
import { type Deployed, startDeployed } from '../deployed.ts'
import { startHelper } from '../helper.ts'
import type { Bench, Finding } from '../row.ts'
import { answerAbout, loadCore, requestsOf, secret, serverCore } from '../gate/parts.ts'
import { post } from '../gate/paid-call-parts.ts'
import { type Sample, alternate, measure, processorFinding } from '../gate/rounds.ts'

const userCount = 200
const included = String(10n ** 14n)

/**
 * Compares warm decisions about users of a customer's app, whose owner's account pays, too, with
 * decisions about users of a platform-owned app. Counts the processor time of the sidecar and of a
 * real core, which lends the money and takes the reports.
 */
export async function twoAccounts(bench: Bench): Promise<Finding[]> {
  const deployed = await startDeployed(bench)
  const [one, two] = [await newKeys(deployed, false), await newKeys(deployed, true)]
  const env = {
    CORE_TARGET: deployed.coreTarget,
    CORE_TOKEN: deployed.coreToken,
    WEBHOOK_SECRET: secret,
    SIDECAR_ID: 'bench',
    IDENTITY_TTL_SECONDS: '3600',
    REVOCATION_BOUND_SECONDS: '3660',
  }
  const args = [JSON.stringify(env)]
  const server = await startHelper({ program: 'sidecar-server.ts', args, core: serverCore })
  bench.defer(server.stop)
  const load = await startHelper({ program: 'load.ts', args: [], core: loadCore })
  bench.defer(load.stop)
  // The first call creates the owner's account.
  await answerAbout(server, two[0] ?? '')
  await raiseCeilings(bench, deployed)
  const count = bench.quick ? 10_000 : 30_000
  const measureOf = (keys: readonly string[]) => async (): Promise<Sample> => {
    await load.ask(requestsOf(keys))
    await measure({ load, server, count: keys.length * 10 })
    const before = await deployed.coreCpuMs()
    const sample = await measure({ load, server, count })
    const core = ((await deployed.coreCpuMs()) - before) * 1_000
    return { ...sample, cpuUs: sample.cpuUs + core / count }
  }
  for (const keys of [one, two]) await measureOf(keys)()
  const pair = await alternate(bench.quick ? 5 : 8, measureOf(one), measureOf(two))
  const name = 'warm decision with two accounts'
  return [processorFinding(pair, { name, atLeast: 0.87, beside: 'one account' })]
}

/** Creates an app whose users have more money than a run can spend, and a key for each user. */
async function newKeys(
  { operator, platformPort }: Deployed,
  isCustomer: boolean,
): Promise<readonly string[]> {
  const app = await operator.apps.createApp({
    name: 'Bench',
    ownerEmail: isCustomer ? 'owner@example.com' : undefined,
    ownerPassword: undefined,
    starterUsdMicros: included,
    isCustomer,
  })
  const users = `http://127.0.0.1:${platformPort}/api/v1/apps/${app.clientId}/users`
  const authorization = basic(app.m2mClientId, app.m2mClientSecret)
  const keys: string[] = []
  for (let n = 0; n < userCount; n++) {
    // Answers must have the same length.
    const user = `user-${String(n).padStart(5, '0')}`
    await post(users, authorization, { externalUserId: user })
    const { apiKey = '' } = await post(`${users}/${user}/keys`, authorization, {})
    keys.push(apiKey)
  }
  return keys
}

/** Gives owners' accounts more credit than a run can spend. */
async function raiseCeilings(bench: Bench, { databaseUrl: url }: Deployed): Promise<void> {
  const pool = createPool({ url, max: 1, name: 'tollgate-bench', statementTimeoutMs: 60_000 })
  bench.defer(() => pool.end())
  const { rowCount } = await pool.query(
    'update balances set ceiling_attos = 1e30 where app_id = (select app_id from platform_app)',
  )
  if (rowCount !== 1) throw new Error('the owner has no account')
}
