import { describe, expect, it } from 'vitest'
import { createLog } from '../../../core/lib/log.ts'
import { DomainError } from '../../../proto/errors.ts'
import type { ReportRequest } from '../../../proto/gen/ts-proto/tollgate/allowances/v1/escrow.ts'
import { createAccounts } from '../../../sidecar/accounts/accounts.ts'
import type { AllowedCall } from '../../../sidecar/accounts/call-pool.ts'
import { authorisationOf } from '../../../sidecar/accounts/report-entries.ts'
import { createReports } from '../../../sidecar/accounts/reports.ts'
import { readSession } from '../../../sidecar/accounts/session.ts'
import { createVersions } from '../../../sidecar/identity/cached-state.ts'
import { firstCall } from '../signer-bodies.ts'

const process = { id: 'one', instance: '7b0c2b3e-3f0e-4a53-9a0c-6f1c8b1f2a11' }

function world() {
  const versions = createVersions({ max: 10 })
  const accounts = createAccounts({ versions, ttlSeconds: 10, max: 10, mono: () => 0 })
  const account = accounts.accountOf('acme:alice')
  const requests: ReportRequest[] = []
  const core = {
    mono: 0,
    through: 0n,
    failures: 0,
    isTaken: false,
    isStrict: false,
    shared: [] as string[],
  }
  const lines: string[] = []
  const heard = { reconciled: 0, conflicts: 0, shared: [] as string[] }
  const reports = createReports({
    process,
    mono: () => core.mono,
    ageMono: () => core.mono,
    log: createLog({ level: 'error', name: 'sidecar' }, { write: (line) => void lines.push(line) }),
    core: {
      report: async (request) => {
        requests.push(request)
        if (core.isTaken) throw new DomainError('CONFLICT', 'taken')
        if (core.isStrict) throw new DomainError('REQUEST_INVALID', 'sequence is odd')
        if (request.number === core.through + 1n) core.through = request.number
        if (core.failures-- > 0) throw new DomainError('UNAVAILABLE', 'lost')
        return { through: core.through, rate: undefined, recalled: [], sharedSessions: core.shared }
      },
    },
  })
  reports.listen({
    onRate: () => undefined,
    onRecalled: () => undefined,
    onShared: (id) => void heard.shared.push(id),
    onConflict: () => void heard.conflicts++,
    onReconciled: () => void heard.reconciled++,
  })
  const body = JSON.stringify(firstCall())
  const session = readSession(firstCall().state, body)
  if (!session) throw new Error('no session')
  const callOf = (sequence: number, isOffline = false): AllowedCall => ({
    leaseId: 'lease',
    session: { ...session, sequence },
    bound: 7,
    at: 1_000.5,
    keyId: '',
    isOffline,
  })
  const add = (sequence: number, isOffline = false) =>
    reports.add(account, callOf(sequence, isOffline))
  const sequences = ({ users }: ReportRequest) =>
    users.flatMap((user) => user.authorisations.map(({ sequence }) => Number(sequence)))
  return { accounts, account, core, reports, requests, heard, lines, add, sequences, session }
}

describe('a report', () => {
  it('is repeated with its number until it is answered, and counts once', async () => {
    const { core, reports, requests, add, sequences } = world()
    add(1)
    core.failures = 2
    await reports.flush()
    add(2)
    await reports.flush()
    await reports.flush()
    await reports.flush()
    expect(requests.map(({ number }) => Number(number))).toEqual([1, 1, 1, 2])
    expect(requests.map(sequences)).toEqual([[1], [1], [1], [2]])
    expect(reports.unreported()).toBe(0)
  })

  it('tells the age of its calls, anew with each try', async () => {
    const { core, reports, requests, add } = world()
    add(1)
    core.failures = 1
    core.mono = 200
    await reports.flush()
    core.mono = 30_000
    await reports.flush()
    const ages = requests.map(({ users }) => users[0]?.authorisations[0]?.ageMillis)
    expect(ages).toEqual([200, 30_000])
  })

  it('says of each call nothing of the calls that were reported before', async () => {
    const { accounts, reports, requests, session } = world()
    const calls = [
      { leaseId: 'lease', session, bound: 7, at: 1_000, keyId: 'key', isOffline: false },
      {
        leaseId: '',
        session: {
          id: 'other',
          sequence: 3,
          seconds: 4,
          nanos: 5,
          type: '' as const,
          app: '',
          isApproximate: !session.isApproximate,
          price: null,
          units: null,
        },
        bound: 8,
        at: 2_000,
        keyId: '',
        isOffline: true,
      },
    ]
    const users = ['acme:alice', 'acme:bob', 'acme:carol']
    for (const user of users) {
      for (const call of calls) {
        reports.add(accounts.accountOf(user), call)
        await reports.flush()
      }
    }
    expect(requests.map(({ users: [user] }) => user)).toEqual(
      users.flatMap((user) =>
        calls.map((call) => ({
          clientId: 'acme',
          externalUserId: user.slice(5),
          authorisations: [authorisationOf(call, 0)],
          refused: [],
          returned: [],
        })),
      ),
    )
  })

  it('is one at a time', async () => {
    const { reports, requests, add } = world()
    add(1)
    await Promise.all([reports.flush(), reports.flush(), reports.heartbeat()])
    expect(requests).toHaveLength(1)
  })

  it('is sent at once when 250 calls wait, and in parts of two thousand', async () => {
    const { reports, requests, add, sequences } = world()
    await reports.heartbeat()
    for (let n = 0; n < 4_500; n++) add(n)
    await reports.flush()
    await reports.flush()
    expect(requests.map((request) => sequences(request).length)).toEqual([
      0, 250, 2_000, 2_000, 250,
    ])
    expect(requests.flatMap(sequences)).toEqual(Array.from({ length: 4_500 }, (_, n) => n))
  })

  it('carries what belongs to a user in the order in which it happened', async () => {
    const { account, accounts, reports, requests, add, session } = world()
    add(1)
    reports.giveBack(account, {
      id: 'lease',
      amount: 20,
      used: 7,
      renewedAt: 0,
      endsAt: 0,
      renewAbove: 0,
      renewAt: 0,
      usedAt: 0,
    })
    reports.addRefused(accounts.accountOf('acme:bob'), session)
    expect(account.returning).toBe(1)
    await reports.returned(account)
    expect(account.returning).toBe(0)
    expect(requests[0]?.users).toMatchObject([
      {
        externalUserId: 'alice',
        authorisations: [{ leaseId: 'lease', boundUsdAttos: '7000000000', authorisedAt: 1_000n }],
        returned: [{ leaseId: 'lease', usedUsdAttos: '7000000000' }],
      },
      { externalUserId: 'bob', refused: [{ sessionId: '9f86d081', sequence: 0n }] },
    ])
  })

  it('takes the number that core expects when core has forgotten the process', async () => {
    const { core, reports, requests, add } = world()
    add(1)
    await reports.flush()
    add(2)
    core.through = 0n
    await reports.flush()
    await reports.flush()
    expect(requests.map(({ number }) => Number(number))).toEqual([1, 2, 1])
    expect(reports.unreported()).toBe(0)
  })

  it('is full with a hundred thousand calls', () => {
    const { reports, add } = world()
    for (let n = 0; n < 99_999; n++) add(n)
    expect(reports.isFull()).toBe(false)
    add(99_999)
    expect(reports.isFull()).toBe(true)
  })

  it('tells which sessions another process has joined', async () => {
    const { core, reports, heard } = world()
    core.shared = ['9f86d081']
    await reports.heartbeat()
    expect(heard.shared).toEqual(['9f86d081'])
  })

  it('tells when core knows of all that was spent offline', async () => {
    const { core, reports, heard, add } = world()
    add(1, true)
    core.failures = 1
    await reports.flush()
    expect(heard.reconciled).toBe(0)
    await reports.flush()
    expect(heard.reconciled).toBe(1)
  })

  it('that did not arrive goes before any heartbeat: core would take its calls to be known', async () => {
    const { core, reports, requests, add } = world()
    core.mono = 1_000
    await reports.heartbeat()
    add(1)
    core.isStrict = true
    core.mono = 5_000
    await reports.flush()
    await reports.heartbeat()
    expect(requests.map(({ number }) => number)).toEqual([0n, 1n, 1n])
    expect(reports.unheardMs()).toBe(4_000)
    core.isStrict = false
    await reports.heartbeat()
    expect([reports.unheardMs(), reports.unreported()]).toEqual([0, 0])
  })

  it('that core refuses is said once in ten seconds, and kept', async () => {
    const { core, reports, lines, add } = world()
    core.isStrict = true
    add(1)
    for (core.mono = 0; core.mono < 20_000; core.mono += 1_000) await reports.flush()
    expect(lines.filter((line) => line.includes('core refuses the reports'))).toHaveLength(2)
    expect(lines[0]).toContain('sequence is odd')
    core.isStrict = false
    await reports.flush()
    expect(reports.unreported()).toBe(0)
  })

  it('is not tried at an id that another process has more loudly than once in ten seconds', async () => {
    const { core, reports, lines, add } = world()
    core.isTaken = true
    add(1)
    for (core.mono = 0; core.mono < 20_000; core.mono += 500) await reports.flush()
    expect(lines.filter((line) => line.includes('SIDECAR_ID'))).toHaveLength(2)
  })

  it('that another process has the id is kept, and sent when the id is free', async () => {
    const { core, reports, requests, heard, add } = world()
    core.isTaken = true
    add(1)
    await reports.flush()
    expect([reports.isRefused(), heard.conflicts, reports.unreported()]).toEqual([true, 1, 1])
    await expect(reports.join()).rejects.toMatchObject({ reason: 'UNAVAILABLE' })
    core.isTaken = false
    await reports.flush()
    expect([reports.isRefused(), reports.unreported()]).toEqual([false, 0])
    expect(requests.at(-1)?.number).toBe(1n)
  })

  it('of a stop is the last one, behind everything else', async () => {
    const { reports, requests, add } = world()
    for (let n = 0; n < 2_500; n++) add(n)
    await reports.stop()
    expect(reports.unreported()).toBe(0)
    expect(requests.at(-1)).toMatchObject({ number: 0n, stopped: true })
    expect(requests.slice(0, -1).every(({ stopped }) => !stopped)).toBe(true)
  })

  it('gives up a stop that core does not answer', async () => {
    const { core, reports, requests, add } = world()
    add(1)
    core.failures = 100
    await reports.stop()
    expect([reports.unreported(), requests.length < 4]).toEqual([1, true])
  })
})
