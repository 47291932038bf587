import { describe, expect, it } from 'vitest'
import { leaseOf, world } from './report-support.ts'

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
