import { describe, expect, it } from 'vitest'
import { leaseOf, world } from './report-support.ts'

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
    expect(reports.msSinceLastContact()).toBe(4_000)
    core.isStrict = false
    await reports.heartbeat()
    expect([reports.msSinceLastContact(), reports.unreported()]).toEqual([0, 0])
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
