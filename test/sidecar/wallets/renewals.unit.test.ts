import { describe, expect, it } from 'vitest'
import { DomainError } from '../../../proto/errors.ts'
import {
  type LendRequest,
  LendResponse,
} from '../../../proto/gen/ts-proto/tollgate/balances/v1/escrow.ts'
import { createAccounts } from '../../../sidecar/wallets/accounts.ts'
import { noRate } from '../../../sidecar/wallets/bounds.ts'
import type { EscrowCore } from '../../../sidecar/core/escrow.ts'
import { createLeases } from '../../../sidecar/wallets/leases.ts'
import type { Reports } from '../../../sidecar/wallets/reports.ts'
import { createVersions } from '../../../sidecar/cache/cached-state.ts'

const users = 100
const passMs = 200

/** The leases of a sidecar with a scripted core. */
function world(core: Pick<EscrowCore, 'lend' | 'within'>) {
  const clock = { ms: 0 }
  const mono = () => clock.ms
  const versions = createVersions({ max: users })
  const accounts = createAccounts({ versions, ttlSeconds: 10, max: users, mono })
  const leases = createLeases({
    core,
    process: { id: 'sidecar', instance: 'instance' },
    accounts,
    versions,
    reports: noReports,
    rate: noRate(),
    refreshMs: 7_500,
    mono,
    gather:
      ({ send }) =>
      async (call) => {
        const [answer] = await send([call])
        if (!answer) throw new Error('no answer')
        return answer
      },
  })
  return { clock, accounts, leases }
}

const answerTo = ({ calls }: LendRequest): LendResponse =>
  LendResponse.fromPartial({
    answers: calls.map(({ externalUserId }) => ({
      userId: externalUserId,
      active: true,
      remainingUsdAttos: '0',
      lease: { id: `of ${externalUserId}`, amountUsdAttos: `1${'0'.repeat(18)}`, seconds: 30 },
    })),
  })

const noReports = {
  join: async () => {},
  returned: async () => {},
  takeRuns: () => {},
  flush: async () => {},
  isRefused: () => false,
} as unknown as Reports

describe('leases', () => {
  it('are renewed in time and spread over it, even if opened together', async () => {
    let renewals = 0
    const { clock, accounts, leases } = world({
      within: (work) => work,
      lend: async (request) => {
        renewals += request.calls.length
        return answerTo(request)
      },
    })
    const all = Array.from({ length: users }, (_, n) => accounts.accountOf(`app:user-${n}`))
    await Promise.all(all.map((account) => leases.lend(account, { bound: 0 })))
    const perPass: number[] = []
    for (; clock.ms < 60_000; clock.ms += passMs) {
      for (const account of all) {
        if (account.lease) leases.debit(account, account.lease, { bound: 0, at: clock.ms })
        expect(accounts.isCurrent(account, clock.ms)).toBe(true)
      }
      const before = renewals
      await leases.renewDue()
      perPass.push(renewals - before)
    }
    // Once a second, over half of the period of 7.5 s.
    expect(Math.max(...perPass)).toBeLessThanOrEqual(40)
    expect(perPass.filter((count) => count > 0).length).toBeLessThanOrEqual(60)
    expect(renewals).toBeLessThan(users * 10)
  })

  it('lent after a decision has given up pay for the next one', async () => {
    const answered = Promise.withResolvers<void>()
    let requests = 0
    const { accounts, leases } = world({
      within: () => Promise.reject(new DomainError('UNAVAILABLE', 'core has not answered in time')),
      lend: async (request) => {
        requests += 1
        await answered.promise
        return answerTo(request)
      },
    })
    const account = accounts.accountOf('app:user')
    for (let decision = 0; decision < 2; decision++)
      await expect(leases.lend(account, { bound: 1 })).rejects.toThrow('not answered in time')
    answered.resolve()
    await account.lending
    expect(leases.covers(account, { bound: 1, at: 0 })).toBe(true)
    expect(requests).toBe(1)
  })
})
