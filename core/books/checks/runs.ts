import { DomainError } from '../../../proto/errors.ts'
import type { Reconciliation as ProcessorReconciliation } from '../../billing/reconciliation/reconciliation.ts'
import type { Reconciliation as MeteringReconciliation } from '../../metering/backend/reconciliation.ts'
import type { Now } from '../../lib/time.ts'
import type { Verify } from '../verify/verify.ts'
import type { Check } from './checks.ts'
import { describeAccount, describeBooks, describePayment, describeUserDay } from './findings.ts'
import type { CheckName } from './store.ts'

export interface CheckParts {
  readonly verify: Verify
  readonly now: Now
  readonly backend: {
    /** Undefined unless sums are sent to a metering backend. */
    readonly comparison: Pick<MeteringReconciliation, 'compare'> | undefined
  }
  /** Null without a payment processor. */
  readonly processorReconciliation: Pick<
    ProcessorReconciliation,
    'reconcile' | 'openDifferences'
  > | null
}

const dayMs = 86_400_000
const daysBack = 7

/** What each check does. */
export const createRuns = (parts: CheckParts): Readonly<Record<CheckName, Check>> => ({
  books: { run: checkBooks(parts), requireConfigured: () => {} },
  metering: checkMetering(parts),
  processor: checkProcessor(parts),
})

const checkBooks =
  ({ verify }: CheckParts): Check['run'] =>
  async (report, signal) => {
    const checked = { apps: 0, users: 0 }
    const progress = (): void => report.progress(`${countOf(checked)} checked`)
    await verify.verify({
      clientId: undefined,
      signal,
      listener: {
        progress: ({ clientId, usersChecked, usersTotal }) =>
          report.progress(
            `${countOf(checked)} checked; ${clientId}: ${usersChecked} of ${usersTotal} users`,
          ),
        difference: ({ clientId }, difference) =>
          report.addFinding(describeBooks(clientId, difference)),
        done: ({ clientId, usersChecked }) => {
          checked.apps += clientId === '' ? 0 : 1
          checked.users += usersChecked
          progress()
        },
      },
    })
    return `${countOf(checked)} checked.`
  }

const countOf = ({ apps, users }: { readonly apps: number; readonly users: number }): string =>
  `${apps} ${apps === 1 ? 'app' : 'apps'} and ${users} ${users === 1 ? 'user' : 'users'}`

function checkMetering({ backend: { comparison }, now }: CheckParts): Check {
  const requireComparison = () => {
    if (comparison !== undefined) return comparison
    throw new DomainError(
      'METERING_NOT_CONFIGURED',
      'no metering backend other than our own tables is configured',
    )
  }
  return {
    requireConfigured: () => void requireComparison(),
    run: async (report, signal) => {
      const { compare } = requireComparison()
      const today = Math.floor(now().getTime() / dayMs) * dayMs
      const from = new Date(today - daysBack * dayMs)
      const span = { clientId: null, from, to: new Date(today + dayMs) }
      let compared = 0
      for await (const day of compare(span, signal)) {
        compared += day.users.length
        report.progress(`${day.day}: ${compared} days of users compared`)
        for (const user of day.users) if (user.drifts) report.addFinding(describeUserDay(day, user))
      }
      return `${compared} days of users compared, since ${from.toISOString().slice(0, 10)}.`
    },
  }
}

function checkProcessor({ processorReconciliation }: CheckParts): Check {
  const requireProcessor = () => {
    if (processorReconciliation !== null) return processorReconciliation
    throw new DomainError('PROCESSOR_NOT_CONFIGURED', 'this deployment has no payment processor')
  }
  return {
    requireConfigured: () => void requireProcessor(),
    run: async (report, signal) => {
      const { reconcile, openDifferences } = requireProcessor()
      const failures: string[] = []
      let accounts = 0
      const compared = (): string =>
        `${accounts} ${accounts === 1 ? 'account' : 'accounts'} compared`
      for await (const { place, failure } of reconcile({ range: null, isRecent: false }, signal)) {
        if (failure === null) accounts += 1
        else failures.push(`the ${describeAccount(place.at)} was not compared: ${failure}`)
        report.progress(compared())
      }
      // Also those that earlier comparisons found.
      for await (const difference of openDifferences())
        report.addFinding(describePayment(difference))
      requireAll(failures, compared())
      return `${compared()}, up to an hour ago.`
    },
  }
}

/** Throws the first failure, if any: then the check has not seen everything. */
function requireAll([first, ...others]: readonly string[], compared: string): void {
  if (first === undefined) return
  const more = others.length === 0 ? '' : `, and ${others.length} more were not`
  throw new DomainError('PROCESSOR_UNREACHABLE', `${first}${more}; ${compared}`)
}
