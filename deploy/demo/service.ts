import { readEnvironment } from '../../core/lib/settings/environment.ts'
import { ethRate, parseDecimal18 } from '../../core/lib/money.ts'
import { type Quickstart, readQuickstart, resolveDataDir } from '../local/data-dir.ts'
import { changeCore, withCore } from '../cli/command.ts'
import { findCore, requireConsent } from '../cli/target.ts'
import type { Screen } from './screen.ts'

const demoRate = '3000'

export type Target = string | undefined
export type Rate = Awaited<ReturnType<typeof usableRate>>

/**
 * Finds the all-in-one service of this folder, because the demo's users, signer and core must
 * belong to one deployment.
 */
export async function findService(target: string | undefined): Promise<Quickstart> {
  const { env } = await readEnvironment(process.env)
  const dataDir = resolveDataDir(env)
  const service = await readQuickstart(dataDir)
  if (!service)
    throw new Error(`no service found in ${dataDir}; start one with npm start, in another terminal`)
  const core = await findCore(target)
  if (core.address.target !== service.coreTarget)
    throw new Error(
      `the demo plays against the service of ${dataDir} (core at ${service.coreTarget}) only; ` +
        `${target === undefined ? 'CORE_TARGET' : '--target'} names another core, ${core.address.target}`,
    )
  requireConsent(core)
  return service
}

export const currentRate = async (target: Target) =>
  (await withCore({ target }, (core) => core.metering.getMeteringStatus({}))).usableRate

/**
 * Returns the current rate. Without one the demo records a rate, but never in a database that
 * others may share.
 */
export async function usableRate(
  service: Quickstart,
  { target, screen }: { target: Target; screen: Screen },
) {
  const known = await currentRate(target)
  if (!known && service.database !== 'embedded')
    throw new Error(
      'no exchange returned a price, and the demo does not record one in a database that others may share; set ' +
        'one: ./tollgate rate set USD_PER_ETH',
    )
  const observed = known ?? (await recordDemoRate(target))
  const value = parseDecimal18(observed?.usdPerEth ?? '')
  if (!observed || value === null) throw new Error('the service has no usable ETH rate')
  screen.step(
    'Rate',
    `1 ETH = ${observed.usdPerEth} USD (${observed.source})${known ? '' : '; no exchange returned a price, so the demo recorded one'}`,
  )
  return ethRate(value)
}

const recordDemoRate = async (target: Target) =>
  (
    await changeCore({ target }, (core) =>
      core.metering.recordRate({ usdPerEth: demoRate, source: 'demo' }),
    )
  ).rate

/** Rejects unless payments of this service are simulated: the demo must not move real money. */
export async function requireSimulated({ clientId }: Quickstart, target: Target): Promise<void> {
  const { processor } = await withCore({ target }, (core) =>
    core.billing.getProcessor({ clientId }),
  )
  if (processor === 'simulated') return
  throw new Error(
    `the demo pays, so it needs PAYMENT_PROCESSOR=simulated, the default of npm start; ` +
      `this service has ${processor ?? 'none'}`,
  )
}
