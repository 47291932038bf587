import { expect, it } from 'vitest'
import {
  type LendRequest,
  LendResponse,
} from '../../../proto/gen/ts-proto/tollgate/allowances/v1/escrow.ts'
import { createAccounts } from '../../../sidecar/accounts/accounts.ts'
import { noRate } from '../../../sidecar/accounts/bounds.ts'
import { createLeases } from '../../../sidecar/accounts/leases.ts'
import type { Reports } from '../../../sidecar/accounts/reports.ts'
import { createVersions } from '../../../sidecar/identity/cached-state.ts'

const users = 100
const passMs = 200

it('renews leases that were opened together apart from each other, each in its time', async () => {
  const clock = { ms: 0 }
  const mono = () => clock.ms
  let renewals = 0
  const versions = createVersions({ max: users })
  const accounts = createAccounts({ versions, ttlSeconds: 10, max: users, mono })
  const leases = createLeases({
    core: {
      lend: async ({ calls }: LendRequest) => {
        renewals += calls.length
        return LendResponse.fromPartial({
          answers: calls.map(({ externalUserId }) => ({
            userId: externalUserId,
            active: true,
            remainingUsdAttos: '0',
            lease: {
              id: `of ${externalUserId}`,
              amountUsdAttos: `1${'0'.repeat(18)}`,
              seconds: 30,
            },
          })),
        })
      },
    },
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
  expect(Math.max(...perPass)).toBeLessThanOrEqual(10)
  expect(renewals).toBeLessThan(users * 10)
})

const noReports = {
  join: async () => {},
  returned: async () => {},
  takeRuns: () => {},
  flush: async () => {},
  isRefused: () => false,
} as unknown as Reports
