import { expect, it } from 'vitest'
import { createAccounts } from '../../../sidecar/wallets/accounts.ts'
import { createBounds } from '../../../sidecar/wallets/bounds.ts'
import { readSession } from '../../../sidecar/signer-state/session.ts'
import { createSessionMemory } from '../../../sidecar/wallets/session-calls.ts'
import { createPriorCalls } from '../../../sidecar/wallets/prior-calls.ts'
import { LendAnswer } from '../../../proto/gen/ts-proto/tollgate/balances/v1/escrow.ts'
import { createVersions } from '../../../sidecar/cache/cached-state.ts'
import { firstCall } from '../signer-bodies.ts'
import { vectorNow } from '../support.ts'

it("reports the user's calls before it asks core about an evicted session", async () => {
  const steps: string[] = []
  const versions = createVersions({ max: 10 })
  const accounts = createAccounts({ versions, ttlSeconds: 10, max: 10, mono: () => 0 })
  const memory = createSessionMemory({ max: 10 })
  const rate = { nanosPerWei: 1, attosPerEth: 10n ** 27n, observedAt: 0, isRaised: false }
  const priorCalls = createPriorCalls({
    leases: {
      lend: async () => {
        steps.push('ask')
        return LendAnswer.fromPartial({
          priorCall: { sequence: 2n, seconds: BigInt(vectorNow - 9), nanos: 0 },
        })
      },
    },
    reports: { reported: async () => void steps.push('report'), takeSession: () => {} },
    memory,
    bounds: createBounds({ memory, rate, untyped: null, msSinceLastContact: () => 0 }),
    clocks: { sleep: async () => {} },
  })
  const body = firstCall({
    state: {
      SequenceNumber: 3,
      LastUpdate: new Date(vectorNow * 1_000).toISOString(),
      InitialPricePerUnit: 10,
      InitialPixelsPerUnit: 1,
    },
  })
  const session = readSession(body.state, JSON.stringify(body))
  if (!session) throw new Error('no session')
  const account = accounts.accountOf('acme:alice')
  const call = { account, session, identity: undefined as never, at: 0 }
  expect(await priorCalls.boundByCore(call)).toBe(90)
  expect(steps).toEqual(['report', 'ask'])
})
