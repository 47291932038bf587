import { basic } from '../../../deploy/cli/client.ts'
import { type Deployed, startDeployed } from '../deployed.ts'
import { drive } from '../drive.ts'
import { requestsOf } from '../rest/pair.ts'
import type { Bench, Finding } from '../row.ts'
import { median, pairedRatio } from '../stats.ts'

/**
 * Compares reads of a user's wallet, with its billing state, with reads of the same user's balance,
 * over HTTP, one request at a time.
 */
export async function walletRead(bench: Bench): Promise<Finding[]> {
  const [rounds, count] = bench.quick ? [6, 100] : [12, 200]
  const deployed = await startDeployed(bench)
  const { wallet, balance } = await newMerchant(deployed)
  /** Returns the milliseconds per answer. */
  const time = async (request: Buffer): Promise<number> =>
    1000 /
    (await drive({ port: deployed.platformPort, requests: [request], count, connections: 1 }))
  const [ofWallet, ofBalance]: [number[], number[]] = [[], []]
  // The first rounds warm up the code.
  for (let round = -2; round < rounds; round++) {
    const [one, other] = [await time(wallet), await time(balance)]
    if (round < 0) continue
    ofWallet.push(one)
    ofBalance.push(other)
  }
  return [
    {
      name: 'wallet read, by balance read',
      unit: '',
      target: { atMost: 2 },
      ...pairedRatio(ofWallet, ofBalance),
      detail: `${median(ofWallet).toFixed(2)} ms, balance ${median(ofBalance).toFixed(2)} ms`,
    },
  ]
}

/** Creates an app in billing mode merchant with a user. Returns both requests. */
async function newMerchant({ operator, platformPort }: Deployed) {
  const { clientId, m2mClientId, m2mClientSecret } = await operator.apps.createApp({
    name: 'Bench',
    starterUsdMicros: '5000000',
  })
  await operator.billing.updateBillingSettings({
    clientId,
    billingMode: 'merchant',
    endUserCap: undefined,
    isPlatformOwned: undefined,
    servesEveryApp: undefined,
    platformCutPercent: undefined,
  })
  await operator.users.upsertUser({
    clientId,
    externalUserId: 'ada',
    email: undefined,
    status: undefined,
    clearEmail: false,
  })
  const authorization = basic(m2mClientId, m2mClientSecret)
  const app = `/api/v1/apps/${clientId}`
  const paths = [`${app}/billing/wallet?externalUserId=ada`, `${app}/users/ada/allowances`] as const
  // A failing request would be measured as a fast one.
  for (const path of paths) {
    const { status } = await fetch(`http://127.0.0.1:${platformPort}${path}`, {
      headers: { authorization },
      signal: AbortSignal.timeout(30_000),
    })
    if (status !== 200) throw new Error(`${path}: ${status}`)
  }
  const request = requestsOf(authorization)
  return { wallet: request(`GET ${paths[0]}`), balance: request(`GET ${paths[1]}`) }
}
