import { describe, expect, it } from 'vitest'
import { createLog } from '../../../core/lib/log.ts'
import { DomainError } from '../../../proto/errors.ts'
import type { ReportRequest } from '../../../proto/gen/ts-proto/tollgate/allowances/v1/escrow.ts'
import { type Account, createAccounts } from '../../../sidecar/accounts/accounts.ts'
import type { AllowedCall } from '../../../sidecar/accounts/call-runs.ts'
import { createReports } from '../../../sidecar/accounts/reports.ts'
import { type Session, readSession } from '../../../sidecar/accounts/session.ts'
import { createSessionMemory } from '../../../sidecar/accounts/session-calls.ts'
import { createVersions } from '../../../sidecar/identity/cached-state.ts'
import { firstCall } from '../signer-bodies.ts'

const process = { id: 'one', instance: '7b0c2b3e-3f0e-4a53-9a0c-6f1c8b1f2a11' }

function world() {
  const versions = createVersions({ max: 10 })
  const accounts = createAccounts({ versions, ttlSeconds: 10, max: 1_000, mono: () => 0 })
  const account = accounts.accountOf('acme:alice')
  const requests: ReportRequest[] = []
  const core = {
    mono: 0,
    through: 0n,
    failures: 0,
    isTaken: false,
    isStrict: false,
    shared: [] as string[],
    sharedThrough: 0n,
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
        const { through, shared: sharedSessions, sharedThrough } = core
        return { through, rate: undefined, recalled: [], sharedSessions, sharedThrough }
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
  const memory = createSessionMemory({ max: 2_000 })
  const callOf = (sequence: number, more: Partial<AllowedCall> = {}): AllowedCall => ({
    leaseId: 'lease',
    session: { ...session, sequence },
    bound: 7,
    at: 1_000.5,
    keyId: '',
    isOffline: false,
    ...more,
  })
  /** Allows a call; by default in its own session. */
  const addTo = (to: Account, call: AllowedCall, state: Partial<Session> = {}): void => {
    const own = { ...session, ...call.session, ...state }
    reports.add(to, { ...call, session: own }, memory.remember(to, own))
  }
  const add = (sequence: number, isOffline = false): void =>
    addTo(account, callOf(sequence, { isOffline }), { id: `s${sequence}` })
  /** Allows a call of one session, a second after the previous one. */
  const addNext = (sequence: number, more: Partial<AllowedCall> = {}): void =>
    addTo(account, callOf(sequence, more), { seconds: 1_000 + sequence })
  const sessionsOf = ({ users }: ReportRequest) => users.flatMap(({ sessions }) => sessions)
  const sequences = (request: ReportRequest) =>
    sessionsOf(request).map(({ sequence }) => Number(sequence))
  const numbers = (request: ReportRequest) =>
    sessionsOf(request).map(({ sequence, signedMicros }) => [
      Number(sequence) - signedMicros.length + 1,
      Number(sequence),
    ])
  return {
    accounts,
    account,
    core,
    reports,
    requests,
    heard,
    lines,
    memory,
    callOf,
    add,
    addTo,
    addNext,
    sessionsOf,
    sequences,
    numbers,
    session,
  }
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

  it('contains the current age of its calls at each try', async () => {
    const { core, reports, requests, add, sessionsOf } = world()
    add(1)
    core.failures = 1
    core.mono = 200
    await reports.flush()
    core.mono = 30_000
    await reports.flush()
    const ages = requests.map((request) => sessionsOf(request)[0]?.firstAgeMillis)
    expect(ages).toEqual([200, 30_000])
  })

  it('contains no data of earlier reports', async () => {
    const { accounts, reports, requests, addTo, callOf } = world()
    const states = [
      { id: 'one', sequence: 0, seconds: 1, nanos: 2_000, type: 'live' as const },
      { id: 'other', sequence: 3, seconds: 4, nanos: 5_000, type: '' as const },
    ]
    const calls = [
      callOf(0, { keyId: 'key' }),
      callOf(3, { leaseId: '', bound: 8, isOffline: true }),
    ]
    const users = ['acme:alice', 'acme:bob', 'acme:carol']
    for (const user of users) {
      for (const [index, call] of calls.entries()) {
        addTo(accounts.accountOf(user), call, states[index])
        await reports.flush()
      }
    }
    const none = { authorisations: [], refused: [], returned: [] }
    const common = { approximate: false, firstAgeMillis: 0, lastAgeMillis: 0 }
    const sessions = [
      {
        leaseId: 'lease',
        sessionId: 'one',
        sequence: 0n,
        signedMicros: [1_000_002n],
        boundUsdNanos: [7n],
        firstSeconds: 1n,
        firstNanos: 2_000,
        lastSeconds: 1n,
        lastNanos: 2_000,
        type: 'live',
        keyId: 'key',
        offline: false,
      },
      {
        leaseId: '',
        sessionId: 'other',
        sequence: 3n,
        signedMicros: [4_000_005n],
        boundUsdNanos: [8n],
        firstSeconds: 4n,
        firstNanos: 5_000,
        lastSeconds: 4n,
        lastNanos: 5_000,
        type: '',
        keyId: '',
        offline: true,
      },
    ]
    expect(requests.map(({ users: [user] }) => user)).toEqual(
      users.flatMap((user) =>
        sessions.map((one) => ({
          clientId: 'acme',
          externalUserId: user.slice(5),
          ...none,
          sessions: [{ ...common, ...one }],
        })),
      ),
    )
  })

  it('is sent one at a time', async () => {
    const { reports, requests, add } = world()
    add(1)
    await Promise.all([reports.flush(), reports.flush(), reports.heartbeat()])
    expect(requests).toHaveLength(1)
  })

  it('is sent at once for 250 waiting calls, and in batches of two thousand', async () => {
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

  it("keeps the order of a user's calls, refusals and returned leases", async () => {
    const { account, accounts, reports, requests, add, session } = world()
    add(1)
    reports.giveBack(account, leaseOf())
    reports.addRefused(accounts.accountOf('acme:bob'), session)
    expect(account.returning).toBe(1)
    await reports.returned(account)
    expect(account.returning).toBe(0)
    expect(requests[0]?.users).toMatchObject([
      {
        externalUserId: 'alice',
        sessions: [{ leaseId: 'lease', boundUsdNanos: [7n] }],
        returned: [{ leaseId: 'lease', usedUsdAttos: '7000000000' }],
      },
      { externalUserId: 'bob', refused: [{ sessionId: '9f86d081', sequence: 0n }] },
    ])
  })

  it("continues with core's number when core has forgotten the process", async () => {
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

  it('passes on sessions that another process has joined', async () => {
    const { core, reports, heard } = world()
    core.shared = ['9f86d081']
    await reports.heartbeat()
    expect(heard.shared).toEqual(['9f86d081'])
  })

  it('signals when core has received all offline calls', async () => {
    const { core, reports, heard, add } = world()
    add(1, true)
    core.failures = 1
    await reports.flush()
    expect(heard.reconciled).toBe(0)
    await reports.flush()
    expect(heard.reconciled).toBe(1)
  })

  it('that got no answer is repeated before any heartbeat', async () => {
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

  it('that core refuses is logged once in ten seconds, and kept', async () => {
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

  it('logs a conflicting id once in ten seconds', async () => {
    const { core, reports, lines, add } = world()
    core.isTaken = true
    add(1)
    for (core.mono = 0; core.mono < 20_000; core.mono += 500) await reports.flush()
    expect(lines.filter((line) => line.includes('SIDECAR_ID'))).toHaveLength(2)
  })

  it('is kept while another process has the id, and sent afterwards', async () => {
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

  it('of a stop is sent last', async () => {
    const { reports, requests, add } = world()
    for (let n = 0; n < 2_500; n++) add(n)
    await reports.stop()
    expect(reports.unreported()).toBe(0)
    expect(requests.at(-1)).toMatchObject({ number: 0n, stopped: true })
    expect(requests.slice(0, -1).every(({ stopped }) => !stopped)).toBe(true)
  })

  it('gives up a stop when core does not answer', async () => {
    const { core, reports, requests, add } = world()
    add(1)
    core.failures = 100
    await reports.stop()
    expect([reports.unreported(), requests.length < 4]).toEqual([1, true])
  })
})

describe('consecutive calls of a session', () => {
  it('are one entry with the time and bound of each', async () => {
    const { core, reports, requests, addNext, sessionsOf } = world()
    addNext(0)
    core.mono = 50
    addNext(1, { bound: 9 })
    core.mono = 80
    await reports.flush()
    expect(requests.flatMap(sessionsOf)).toMatchObject([
      {
        sequence: 1n,
        boundUsdNanos: [7n, 9n],
        firstSeconds: 1_000n,
        lastSeconds: 1_001n,
        firstAgeMillis: 80,
        lastAgeMillis: 30,
      },
    ])
    const [entry] = requests.flatMap(sessionsOf)
    expect((entry?.signedMicros[1] ?? 0n) - (entry?.signedMicros[0] ?? 0n)).toBe(1_000_000n)
  })

  it('wait for ten seconds when core knows the session', async () => {
    const { core, reports, requests, addNext, numbers } = world()
    addNext(0)
    await reports.flush()
    for (core.mono = 1_000; core.mono < 10_900; core.mono += 100) {
      if (core.mono % 1_000 === 0) addNext(core.mono / 1_000)
      await reports.flush()
    }
    expect(requests.map(numbers)).toEqual([[[0, 0]]])
    core.mono = 11_000
    await reports.flush()
    expect(requests.map(numbers)).toEqual([[[0, 0]], [[1, 10]]])
    expect(reports.unreported()).toBe(0)
  })

  it.each([
    ['skipped number', 3, {}],
    ['repeated number', 1, {}],
    ['call from the offline budget', 2, { leaseId: '', isOffline: true }],
  ])('are reported with the next flush after a %s', async (_, sequence, more) => {
    const { reports, requests, addNext, numbers } = world()
    addNext(0)
    await reports.flush()
    addNext(1)
    await reports.flush()
    expect(requests).toHaveLength(1)
    addNext(sequence, more)
    await reports.flush()
    expect(requests.slice(1).map(numbers)).toEqual([
      [
        [1, 1],
        [sequence, sequence],
      ],
    ])
  })

  it('are not joined with a replay, which later calls do not prove', async () => {
    const { account, reports, requests, addNext, numbers } = world()
    for (const n of [0, 1, 1, 2]) addNext(n)
    reports.takeRuns(account)
    await reports.flush()
    expect(requests.flatMap(numbers)).toEqual([
      [0, 1],
      [1, 1],
      [2, 2],
    ])
  })

  it('are separate entries for different leases or keys', async () => {
    const { account, reports, requests, addNext, numbers } = world()
    addNext(0)
    addNext(1, { keyId: 'key' })
    addNext(2, { keyId: 'key', leaseId: 'other' })
    reports.takeRuns(account)
    await reports.flush()
    expect(requests.flatMap(numbers)).toEqual([
      [0, 0],
      [1, 1],
      [2, 2],
    ])
  })

  it('are at most a hundred in an entry', async () => {
    const { account, reports, requests, addNext, numbers } = world()
    for (let n = 0; n < 250; n++) addNext(n)
    reports.takeRuns(account)
    await reports.flush()
    expect(requests.flatMap(numbers)).toEqual([
      [0, 99],
      [100, 199],
      [200, 249],
    ])
  })

  it.each([
    ['the lease that paid is returned', 'giveBack'],
    ['a call is refused', 'addRefused'],
    ['a call needs a reservation', 'reported'],
    ['another process joins the session', 'takeSession'],
    ['the sidecar stops', 'stop'],
  ] as const)('are reported when %s', async (_, how) => {
    const { account, reports, requests, addNext, numbers, session } = world()
    addNext(0)
    await reports.flush()
    addNext(1)
    await reports.flush()
    expect(requests).toHaveLength(1)
    if (how === 'giveBack') reports.giveBack(account, leaseOf())
    else if (how === 'addRefused') reports.addRefused(account, session)
    else if (how === 'takeSession') reports.takeSession(session.id)
    else await reports[how](account)
    await reports.flush()
    expect(requests[1] && numbers(requests[1])).toEqual([[1, 1]])
    expect([account.runs, reports.unreported()]).toEqual([null, 0])
  })

  it.each([
    ['of 600 users', { users: 600, sessions: 1, failures: 0 }],
    ['of one user', { users: 1, sessions: 600, failures: 0 }],
    ['of 600 users, when the first report is lost', { users: 600, sessions: 1, failures: 1 }],
  ])(
    'are each reported once when 600 are due together %s',
    async (_, { users, sessions, failures }) => {
      const { accounts, core, reports, requests, addTo, callOf } = world()
      const ids: string[] = []
      for (const sequence of [0, 1]) {
        for (let user = 0; user < users; user++) {
          for (let n = 0; n < sessions; n++) {
            const id = `${user}-${n}`
            ids.push(`${id} ${sequence}`)
            addTo(accounts.accountOf(`acme:user-${user}`), callOf(sequence), { id })
          }
        }
        if (sequence === 0) await reports.flush()
      }
      const before = requests.length
      core.mono = 11_000
      core.failures = failures
      await reports.flush()
      await reports.flush()
      const numbers = requests.map(({ number }) => number)
      expect(new Set(numbers).size).toBe(numbers.length - failures)
      const applied = new Map(requests.map((request) => [request.number, request]))
      const reported = [...applied.values()].flatMap((request) =>
        request.users.flatMap((user) => user.sessions),
      )
      expect(
        reported
          .map(({ sessionId, sequence }) => `${sessionId} ${sequence}`)
          .toSorted((a, b) => (a < b ? -1 : 1)),
      ).toEqual(ids.toSorted((a, b) => (a < b ? -1 : 1)))
      expect(requests.length).toBeGreaterThan(before)
      expect(reports.unreported()).toBe(0)
    },
  )

  it('are reported with the next flush when the prior call is known from core only', async () => {
    const { account, memory, reports, requests, addNext, numbers, session } = world()
    memory.extend(account, session.id, { sequence: 6, seconds: 1_006, nanos: 0 })
    addNext(7)
    await reports.flush()
    addNext(8)
    await reports.flush()
    expect(requests.flatMap(numbers)).toEqual([[7, 7]])
  })

  it('of a shared session are reported with the next flush', async () => {
    const { memory, reports, requests, addNext, numbers, session } = world()
    addNext(0)
    await reports.flush()
    memory.share(session.id)
    addNext(1)
    await reports.flush()
    expect(requests.flatMap(numbers)).toEqual([
      [0, 0],
      [1, 1],
    ])
  })

  it('add the age of the oldest waiting call to each report and heartbeat', async () => {
    const { core, reports, requests, addNext } = world()
    addNext(0)
    await reports.flush()
    await reports.heartbeat()
    core.mono = 1_000
    addNext(1)
    core.mono = 2_500
    addNext(2)
    await reports.heartbeat()
    expect(requests.map(({ unreportedMs }) => unreportedMs)).toEqual([0n, 0n, 1_500n])
  })

  it("repeat core's latest `sharedThrough`", async () => {
    const { core, reports, requests } = world()
    core.sharedThrough = 77n
    await reports.heartbeat()
    await reports.heartbeat()
    expect(requests.map(({ sharedThrough }) => sharedThrough)).toEqual([0n, 77n])
  })
})

const leaseOf = () => ({
  id: 'lease',
  amount: 20,
  used: 7,
  renewedAt: 0,
  endsAt: 0,
  renewAbove: 0,
  renewAt: 0,
  usedAt: 0,
})
