import type { UserKey } from '../../../../core/shared/ids.ts'
import * as fc from 'fast-check'
import type {
  EscrowStore,
  Lease,
  NewAuthorisation,
  StoredAuthorisation,
} from '../../../../core/balances/escrow/port.ts'
import { toMultirange } from '../../../../core/balances/escrow/reports/number-ranges.ts'
import { usdAttos, networkRatio } from '../../../../core/lib/money.ts'
import type { Db } from '../../../../core/lib/sql.ts'
import { type SettlingStep, settlingTickets } from '../../../../core/metering/ingest/charges.ts'

/**
 * The contract of an escrow store: two stores give the same results for the same random operations.
 * Results without a promised order are sorted. Ids are omitted, because each store assigns its own.
 */

const lagSeconds = 20
const holdMaxSeconds = 900
const limit = 1_000

const user = fc.nat(1)
const seconds = fc.nat(2_000)
const call = fc.record({
  user,
  session: fc.constantFrom('a', 'b'),
  sequence: fc.nat(4),
  // Microseconds apart, and further apart than an approximate match allows.
  micros: fc.constantFrom(0, 1, 1_000_000, 2_000_000, 6_000_001),
})
const authorisation = fc.record({
  call,
  sidecar: fc.constantFrom('x', 'y'),
  bound: fc.nat(9),
  at: seconds,
  isApproximate: fc.boolean(),
  // 1 for a single call. A run has more, and takes some seconds.
  calls: fc.constantFrom(1, 1, 2, 3),
})
const tickets = fc.array(fc.record({ call, cost: fc.nat(9) }), { minLength: 1, maxLength: 4 })
const some = <T>(of: fc.Arbitrary<T>) => fc.array(of, { minLength: 1, maxLength: 3 })

const operation = fc.oneof(
  fc.record({ kind: fc.constant('authorise' as const), calls: some(authorisation) }),
  fc.record({ kind: fc.constant('takeEarly' as const), calls: some(authorisation) }),
  fc.record({
    kind: fc.constant('match' as const),
    tickets,
    step: fc.constantFrom<SettlingStep>('booked', 'booked', 'unpriced', 'priced'),
  }),
  fc.record({ kind: fc.constant('ticketed' as const), tickets, at: seconds }),
  fc.record({ kind: fc.constant('early' as const), tickets, at: seconds }),
  fc.record({ kind: fc.constant('old' as const), before: seconds }),
  fc.record({ kind: fc.constant('prove' as const), calls: some(call) }),
  fc.record({
    kind: fc.constant('clock' as const),
    sidecar: fc.constantFrom('x', 'y'),
    at: seconds,
  }),
  fc.record({
    kind: fc.constant('report' as const),
    sidecar: fc.constantFrom('x', 'y'),
    at: seconds,
  }),
  fc.record({
    kind: fc.constant('lend' as const),
    user,
    sidecar: fc.constantFrom('x', 'y'),
    amount: fc.nat(9),
    endsAt: seconds,
  }),
  fc.record({ kind: fc.constant('spend' as const), used: fc.nat(9) }),
  fc.record({
    kind: fc.constant('end' as const),
    at: seconds,
    // Mostly long ago.
    jumped: fc.oneof(fc.constant(-10_000), fc.constant(-10_000), seconds),
  }),
  fc.record({ kind: fc.constant('forget clocks' as const), after: seconds }),
)

export type StoreOperation = typeof operation extends fc.Arbitrary<infer T> ? T : never
export const storeOperations = fc.array(operation, { minLength: 1, maxLength: 25 })

export interface StoreSubject {
  readonly store: EscrowStore
  readonly db: Db
  /** Two users, the one with the lower id first. */
  readonly users: readonly UserKey[]
}

const start = Date.UTC(2026, 2, 10, 12)
const instantOf = (second: number): Date => new Date(start + second * 1_000)
const uuidOf = (n: number): string => `00000000-0000-4000-8000-${String(n).padStart(12, '0')}`
const instances = { x: uuidOf(901), y: uuidOf(902) }

/** Runs operations in order on an empty store. Returns the result of each. */
export async function runStoreOperations(
  subject: StoreSubject,
  operations: readonly StoreOperation[],
): Promise<unknown[]> {
  const answers: unknown[] = []
  const run = createRunner(subject)
  // A sidecar must report before it can authorise.
  for (const sidecar of ['x', 'y'] as const) await run({ kind: 'report', sidecar, at: 0 }, 0)
  for (const [index, operation] of operations.entries())
    answers.push({ kind: operation.kind, answer: await run(operation, index) })
  return answers
}

function createRunner({ store, db, users }: StoreSubject) {
  const userOf = (n: number): UserKey => {
    const key = users[n]
    if (!key) throw new Error('a contract needs two users')
    return key
  }
  const nameOf = ({ userId }: UserKey): number => users.findIndex((key) => key.userId === userId)
  const columnsOf = (list: typeof tickets extends fc.Arbitrary<infer T> ? T : never) =>
    settlingTickets(
      list.map(({ call: { user: n, session, sequence, micros }, cost }) => ({
        ...userOf(n),
        sessionId: session,
        sequence,
        signedMicros: start * 1_000 + micros,
        cost: usdAttos(BigInt(cost)),
      })),
    )
  const toNew = (
    one: typeof authorisation extends fc.Arbitrary<infer T> ? T : never,
  ): NewAuthorisation => {
    const [first, micros] = [BigInt(one.call.sequence), BigInt(start * 1_000 + one.call.micros)]
    const call = {
      ...userOf(one.call.user),
      sessionId: one.call.session,
      sequence: first,
      signedMicros: micros,
      sidecarId: one.sidecar,
      keyId: null,
      sessionType: 'live',
      bound: usdAttos(BigInt(one.bound)),
      authorisedAt: instantOf(one.at),
      isApproximate: one.isApproximate,
      isOffline: false,
    }
    if (one.calls === 1) return call
    const numbers = Array.from({ length: one.calls }, (_, index) => index)
    const last = first + BigInt(one.calls) - 1n
    const times = numbers.map((index) => micros + BigInt(index) * 1_000_000n)
    const bounds = numbers.map((index) => usdAttos(BigInt(one.bound + index) * 1_000_000_000n))
    return {
      ...call,
      sequence: last,
      signedMicros: times.at(-1) ?? micros,
      bound: usdAttos(bounds.reduce((sum: bigint, bound) => sum + bound, 0n)),
      isApproximate: false,
      run: {
        micros: times,
        bounds,
        open: [{ from: first, to: last }],
      },
      lastAt: instantOf(one.at + 3),
    }
  }
  const show = (one: StoredAuthorisation): string =>
    [
      nameOf(one),
      one.sessionId,
      one.sequence,
      one.signedMicros,
      one.sidecarId,
      one.bound,
      one.authorisedAt.getTime() - start,
      one.state,
      one.isProven ? 'proven' : '',
      one.isTicketed ? 'ticketed' : '',
      one.isApproximate ? 'approximate' : '',
      one.run ? `${toMultirange(one.run.open)} ${one.run.micros}` : '',
      one.lastAt ? `until ${one.lastAt.getTime()}` : '',
    ].join(' ')
  const leasesNow = () => store.findLeases(db, users)
  const showLease = (lease: Lease): string =>
    `${nameOf(lease)} ${lease.id} ${lease.sidecarId} ${lease.used}/${lease.amount} ${lease.endsAt.getTime() - start}`

  async function match(list: Parameters<typeof columnsOf>[0], step: SettlingStep) {
    const { sums, unmatched } = await store.matchTickets(db, columnsOf(list), step)
    const byKey = Map.groupBy(sums, (sum) =>
      [nameOf(sum), sum.sessionId, sum.sidecarId, sum.sessionType, sum.state].join(' '),
    )
    const shown = [...byKey].map(([key, of]) => ({
      key,
      count: of.reduce((total, sum) => total + sum.count, 0),
      bound: of.reduce((total: bigint, sum) => total + sum.bound, 0n),
      cost: of.reduce((total: bigint, sum) => total + sum.cost, 0n),
      latest: Math.max(...of.map(({ latestAt }) => latestAt.getTime())) - start,
      booked: Math.max(...of.map(({ bookedThrough }) => bookedThrough.getTime())) - start,
    }))
    return {
      sums: shown.toSorted((a, b) => (a.key < b.key ? -1 : 1)),
      unmatched: unmatched.toSorted((a, b) => a - b),
    }
  }

  async function end({ at: second, jumped }: { at: number; jumped: number }) {
    const jumpedAt = instantOf(jumped)
    const due = { at: instantOf(second), lagSeconds, holdMaxSeconds, jumpedAt, limit }
    const found = await store.findDueUsers(db, due)
    const authorisations = await store.findDueAuthorisations(db, users, due)
    const orphans = (await leasesNow()).filter(({ endsAt }) => endsAt <= due.at)
    const releasable = await store.findReleasable(db, orphans, due)
    const runs = authorisations.filter(({ run }) => run)
    const split = runs.length > 0 ? await store.splitRuns(db, runs) : []
    const calls = [...authorisations.filter(({ run }) => !run), ...split]
    const ended = calls.map((one) => ({
      authorisation: one,
      state: one.isProven ? ('lost' as const) : ('released' as const),
      drawn: null,
    }))
    if (ended.length > 0) await store.endAuthorisations(db, ended, due.at)
    const closed = orphans.filter(({ id }) => releasable.has(id))
    await store.saveLeases(db, { opened: [], changed: [], closed })
    return {
      users: found.map(nameOf),
      due: authorisations.map(show),
      split: split.map(show).toSorted(),
      closed: closed.map(showLease).toSorted(),
    }
  }

  async function lend(
    { user: n, sidecar, amount, endsAt }: Extract<StoreOperation, { kind: 'lend' }>,
    index: number,
  ) {
    const instance = uuidOf(index + 1)
    const lease: Lease = {
      ...userOf(n),
      id: uuidOf(index + 1),
      sidecarId: sidecar,
      instance,
      amount: usdAttos(BigInt(amount)),
      used: usdAttos(0n),
      createdAt: instantOf(0),
      endsAt: instantOf(endsAt),
      recalledAt: null,
      retailRatio: networkRatio,
    }
    await store.saveLeases(db, { opened: [lease], changed: [], closed: [] })
    return (await leasesNow()).map(showLease).toSorted()
  }

  async function spend(used: number) {
    const leases = await leasesNow()
    for (const lease of leases) if (lease.amount >= used) lease.used = usdAttos(BigInt(used))
    await store.saveLeases(db, { opened: [], changed: leases, closed: [] })
    return (await leasesNow()).map(showLease).toSorted()
  }

  async function report(sidecar: 'x' | 'y', at: Date) {
    const process = { id: sidecar, instance: instances[sidecar] }
    const locked = await store.lockSidecar(db, process, { at, silentSince: at })
    const reportedThrough = (locked?.reportedThrough ?? 0n) + 1n
    const state = {
      seenAt: at,
      completeAt: at,
      sharedThrough: at,
      reportedThrough,
      lastAuthorisedAt: at,
      stopped: false,
    }
    await store.saveSidecar(db, process, state)
    return locked
  }

  async function takeOld(before: Date) {
    const taken = await store.takeOldEarlyTickets(db, users, { before, limit })
    return taken.map((ticket) => `${nameOf(ticket)} ${ticket.cost}`).toSorted()
  }

  async function takeEarly(calls: readonly NewAuthorisation[]) {
    const matches = await store.takeEarlyTickets(db, calls)
    return matches.map((early) => early && `${early.numbers.join(',')} ${early.cost}`)
  }

  return (operation: StoreOperation, index: number): Promise<unknown> => {
    switch (operation.kind) {
      case 'authorise':
        return store.insertAuthorisations(db, operation.calls.map(toNew))
      case 'takeEarly':
        return takeEarly(operation.calls.map(toNew))
      case 'match':
        return match(operation.tickets, operation.step)
      case 'ticketed':
        return store.insertTicketed(db, columnsOf(operation.tickets), instantOf(operation.at))
      case 'early':
        return store.insertEarlyTickets(db, columnsOf(operation.tickets), instantOf(operation.at))
      case 'old':
        return takeOld(instantOf(operation.before))
      case 'prove':
        return store
          .prove(
            db,
            operation.calls.map(({ user: n, session, sequence }) => ({
              ...userOf(n),
              sessionId: session,
              sequence: BigInt(sequence),
            })),
          )
          .then((lost) => lost.map(show).toSorted())
      case 'clock':
        return store.advanceClocks(db, new Map([[operation.sidecar, instantOf(operation.at)]]))
      case 'forget clocks':
        return store.forgetClocksAfter(db, instantOf(operation.after))
      case 'report':
        return report(operation.sidecar, instantOf(operation.at))
      case 'lend':
        return lend(operation, index)
      case 'spend':
        return spend(operation.used)
      case 'end':
        return end(operation)
    }
  }
}
