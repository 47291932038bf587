import * as fc from 'fast-check'
import { expect, it } from 'vitest'
import { createEscrowRpc } from '../../../core/balances/escrow/rpc.ts'
import type { ReportMessage } from '../../../core/balances/escrow/service.ts'
import { parseObject } from '../../../core/lib/json.ts'
import { ReportRequest } from '../../../proto/gen/ts-proto/tollgate/balances/v1/escrow.ts'
import { createAccounts } from '../../../sidecar/wallets/accounts.ts'
import { createBounds } from '../../../sidecar/wallets/bounds.ts'
import { createReports } from '../../../sidecar/wallets/reports.ts'
import { readSession } from '../../../sidecar/signer-state/session.ts'
import { createSessionMemory } from '../../../sidecar/wallets/session-calls.ts'
import { createVersions } from '../../../sidecar/cache/cached-state.ts'
import { silentLog } from '../../../core/lib/log.ts'
import { firstCall } from '../signer-bodies.ts'

/**
 * Core refuses a batch as a whole and the sidecar repeats it, so one invalid call would stop all
 * reports forever.
 */

const process = { id: 'one', instance: '7b0c2b3e-3f0e-4a53-9a0c-6f1c8b1f2a11' }

/** A sidecar whose reports pass through the wire format to core's own validation. */
function world() {
  const messages: ReportMessage[] = []
  const { escrowService } = createEscrowRpc({
    escrow: {
      report: async (message: ReportMessage) => {
        messages.push(message)
        return {
          through: message.number,
          recalled: [],
          shared: [],
          sharedThrough: new Date(0),
          rate: null,
        }
      },
    } as never,
    holds: undefined as never,
  })
  const { unary } = escrowService.report as unknown as {
    unary: (call: object, deps: object) => Promise<never>
  }
  const report = (request: ReportRequest) =>
    unary(
      {
        request: ReportRequest.decode(ReportRequest.encode(request).finish()),
        credentials: {},
        context: {},
      },
      {},
    )
  const versions = createVersions({ max: 10 })
  const account = createAccounts({
    versions,
    ttlSeconds: 10,
    max: 10,
    mono: () => 0,
  }).accountOf('acme:alice')
  const reports = createReports({
    process,
    mono: () => 1e15,
    ageMono: () => 1e15,
    log: silentLog(),
    core: { report },
  })
  return { account, reports, messages }
}

const rate = { nanosPerWei: 1e-3, attosPerEth: 10n ** 24n, observedAt: 0, isRaised: false }
const untypedDollars = fc.constantFrom(0, 1, 10 ** 15)

const text = fc.oneof(
  fc.string({ unit: 'binary', maxLength: 300 }),
  fc.string({
    unit: fc.constantFrom('\0', '\u001f', '\u007f', '\ud800', '\udfff', 'a', 'é', '😀'),
  }),
  fc.constantFrom(
    '',
    'live',
    'lv2v',
    'fixed',
    '~'.repeat(128),
    '~'.repeat(129),
    'x'.repeat(10_000),
  ),
)
const number = fc.oneof(
  fc.integer(),
  fc.double(),
  fc.constantFrom(-0, 1, 2 ** 53 - 1, 2 ** 53, 2 ** 63, 1e308, -1),
)
const two = (max: number) => fc.integer({ min: 0, max }).map((n) => String(n).padStart(2, '0'))
const year = fc.oneof(fc.constantFrom(0, 1, 1970, 2026, 9999), fc.integer({ min: 0, max: 9999 }))
const time = fc
  .tuple(
    year.map((n) => String(n).padStart(4, '0')),
    fc.constantFrom('01-01', '12-31', '02-29', '06-15'),
    two(23),
    fc.constantFrom('', '.5', '.999999999', '.000000001'),
    fc.constantFrom('Z', '+23:59', '-23:59', '+00:01'),
  )
  .map(([y, day, hour, fraction, zone]) => `${y}-${day}T${hour}:00:00${fraction}${zone}`)
const anything = fc.oneof(text, number, fc.constantFrom(null, true, [], {}))
const state = fc.record(
  {
    StateID: fc.oneof({ weight: 5, arbitrary: fc.stringMatching(/^[!-~]{1,128}$/) }, anything),
    LastUpdate: fc.oneof({ weight: 5, arbitrary: time }, anything),
    SequenceNumber: fc.oneof({ weight: 5, arbitrary: number }, anything),
    Type: fc.oneof(text, anything),
    App: anything,
    InitialPricePerUnit: anything,
    InitialPixelsPerUnit: anything,
  },
  { requiredKeys: [] },
)

it('core accepts the report of any allowed call', async () => {
  let reported = 0
  await fc.assert(
    fc.asyncProperty(state, untypedDollars, text, async (change, untyped, keyId) => {
      const body = JSON.stringify(firstCall({ state: change }))
      const session = readSession(parseObject(body)?.['state'], body)
      if (!session?.isReadable) return
      const { account, reports, messages } = world()
      const memory = createSessionMemory({ max: 10 })
      const bounds = createBounds({
        memory,
        rate,
        untyped,
        msSinceLastContact: () => 0,
      })
      const known = bounds.boundOf(account, session)
      const bound =
        typeof known === 'number' ? known : bounds.boundSince({ account, session }, null)
      // An infinite bound exceeds every balance, so the call is never allowed.
      if (bound > Number.MAX_SAFE_INTEGER) return
      const call = { leaseId: '', session, bound, at: 1.5, keyId, isOffline: true }
      reports.add(account, call, memory.remember(account, session))
      reports.addRefused(account, session)
      await reports.flush()
      expect(messages).toHaveLength(1)
      expect(messages[0]?.users[0]?.calls).toMatchObject([{ sessionId: session.id }])
      expect(reports.unreported()).toBe(0)
      reported++
    }),
    { numRuns: 2_000 },
  )
  expect(reported).toBeGreaterThan(100)
})
