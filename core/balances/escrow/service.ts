import { DomainError, type Reason } from '../../../proto/errors.ts'
import type { UserAccess } from '../../identity/users/resolve.ts'
import type { Users } from '../../identity/users/users.ts'
import { createBatchLoader } from '../../lib/concurrency.ts'
import type { UsdAttos } from '../../lib/money.ts'
import { isUnavailable, tx } from '../../lib/sql.ts'
import type { MeteringApi } from '../../metering/module.ts'
import { type UserId, authId, type UserKey } from '../../shared/ids.ts'
import type { DatabaseClock } from '../../shared/database-clock.ts'
import type { Shared } from '../../shared/shared.ts'
import type { Escrow } from './escrow.ts'
import type { LendCall } from './granting/lending.ts'
import type { ReserveAnswer, ReserveCall } from './granting/reserve.ts'
import type { RefusedCall, ReportedCalls, ReturnedLease } from './reports/reporting.ts'
import type { EscrowMeters } from './metrics.ts'
import type { SidecarProcess } from './port.ts'

export interface EscrowServiceDeps extends Pick<Shared, 'pool' | 'invalidations' | 'log'> {
  readonly escrow: Escrow
  readonly users: Users
  readonly boundRate: MeteringApi['boundRate']
  readonly meters: EscrowMeters
  readonly time: Pick<DatabaseClock, 'current'>
}

/** A user as identified by a sidecar. */
interface Subject {
  readonly clientId: string
  readonly externalUserId: string
}

type Of<T extends UserKey> = Omit<T, keyof UserKey | 'isActive' | 'process'>

export interface LendMessage {
  readonly process: SidecarProcess
  readonly calls: readonly (Subject & Of<LendCall>)[]
}

export interface ReserveMessage {
  readonly process: SidecarProcess
  readonly calls: readonly (Subject & Of<ReserveCall>)[]
}

export interface ReportMessage {
  readonly process: SidecarProcess
  readonly number: bigint
  readonly users: readonly (Subject & {
    readonly calls: readonly Of<ReportedCalls>[]
    readonly refused: readonly Of<RefusedCall>[]
    readonly returned: readonly Of<ReturnedLease>[]
  })[]
  readonly stopped: boolean
  readonly unreportedMs: number
  readonly sharedThrough: Date
}

const subjectOf = ({ clientId, externalUserId }: Subject): string =>
  authId(clientId, externalUserId)

/** The most Reserve RPCs that share a transaction. */
const groupMax = 64
const groupsAtOnce = 2

/**
 * The escrow as called by sidecars. Resolves names to users, provisions unknown users of known
 * apps, runs each request in a transaction, and publishes recalled leases after its commit.
 */
export function createEscrowService(deps: EscrowServiceDeps) {
  const { pool, escrow, users, boundRate, meters, time } = deps
  const publish = createPublisher(deps)

  /**
   * Opens and renews leases. An answer is null if the subject is not a user. Throws CONFLICT if
   * another process has the sidecar's id.
   */
  async function lend({ process, calls }: LendMessage) {
    const { states, denials } = await users.admitStates(calls)
    const indexed = withUsers(calls, states)
    const rate = boundRate()
    const at = await time.current()
    const known = indexed.map(({ call, user }) => ({ ...call, ...activeKey(user) }))
    const payers = await escrow.findPayers(pool, known, at)
    const { answers, recalled } = await tx(pool, (db) =>
      escrow.lend(db, { process, calls: known, payers }, at),
    )
    await publish(recalled)
    for (const answer of answers) if (answer && answer.raise > 0n) meters.lent(answer.raise)
    return { answers: inOrder(calls, { indexed, answers, denials }), rate: await rate }
  }

  const reserveGroup = createBatchLoader(
    async (messages: readonly ReserveMessage[]) => {
      const answers = await answersTo(messages)
      return (message) => first(answers.slice(messages.indexOf(message)))
    },
    { batchMax: groupMax, concurrency: groupsAtOnce },
  )

  // A call that cannot be stored must not make the other calls of its group fail.
  async function answersTo(messages: readonly ReserveMessage[]) {
    try {
      const answers = await reserveInGroup(messages)
      return answers.map((answer) => Promise.resolve(answer))
    } catch (error) {
      if (messages.length === 1 || isUnavailable(error)) throw error
      return messages.map(async (message) => first(await reserveInGroup([message])))
    }
  }

  /** Runs one transaction for many requests. */
  async function reserveInGroup(messages: readonly ReserveMessage[]) {
    const calls = messages.flatMap(({ process, calls: own }) =>
      own.map((call) => ({ ...call, process })),
    )
    const { states, denials } = await users.admitStates(calls)
    const indexed = withUsers(calls, states)
    const at = await time.current()
    const owners = await escrow.noteReservations(pool, calls, at)
    const known = indexed.map(({ call, user }) => ({ ...call, ...activeKey(user) }))
    const payers = await escrow.findPayers(pool, known, at)
    const { answers, recalled, ended } = await tx(pool, (db) =>
      escrow.reserve(db, { calls: known, owners, payers }, at),
    )
    await publish(recalled)
    indexed.forEach(({ call }, index) => countReservation(call.bound, answers[index] ?? null))
    if (ended) meters.ended(ended)
    const ordered = inOrder(calls, { indexed, answers, denials })
    let from = 0
    return messages.map((message) => ordered.slice(from, (from += message.calls.length)))
  }

  function countReservation(bound: UsdAttos, answer: ReserveAnswer | null): void {
    if (answer?.refusal === null) meters.reserved(bound)
    else meters.refused(answer?.refusal ?? 'invalid_identity')
  }

  /**
   * Reserves single calls. Requests of one turn of the event loop share a transaction. An answer is
   * null if the subject is not a user. Throws CONFLICT if another process has the sidecar's id.
   */
  async function reserve(message: ReserveMessage) {
    const answers = await reserveGroup(message)
    if (answers.some(({ answer }) => answer?.refusal === 'not_owner'))
      throw new DomainError('CONFLICT', "another process uses this sidecar's id")
    return answers
  }

  /**
   * Applies a sidecar's batch, or takes its heartbeat. Throws CONFLICT if another process has the
   * sidecar's id.
   */
  async function report({ users: reports, ...message }: ReportMessage) {
    const states = await users.resolveStates(reports)
    const known = withUsers(reports, states)
    if (known.length < reports.length)
      deps.log.warn({ sidecarId: message.process.id }, 'a sidecar reported calls of unknown users')
    const batch = {
      ...message,
      calls: known.flatMap(({ call, user }) =>
        call.calls.map((one) => ({ ...one, ...keyOf(user) })),
      ),
      refused: known.flatMap(({ call, user }) =>
        call.refused.map((one) => ({ ...one, ...keyOf(user) })),
      ),
      returned: known.flatMap(({ call, user }) =>
        call.returned.map((one) => ({ ...one, ...keyOf(user) })),
      ),
    }
    const rate = boundRate()
    const at = await time.current()
    const { figures, ...answer } = await tx(pool, (db) => escrow.report(db, batch, at))
    if (figures) {
      meters.used(figures.used, figures.calls)
      meters.returned(figures.returned, batch.returned.length)
      meters.late(figures.late.amount, figures.late.count)
      if (figures.ended) meters.ended(figures.ended)
    }
    return { ...answer, rate: await rate }
  }

  return { lend, reserve, report }
}

export type EscrowService = ReturnType<typeof createEscrowService>

const createPublisher =
  ({ invalidations, meters, log }: EscrowServiceDeps) =>
  async (recalled: readonly UserId[]): Promise<void> => {
    if (recalled.length === 0) return
    meters.recalled.inc(recalled.length)
    log.info({ users: recalled.length }, 'leases recalled')
    // Waits no longer than Redis takes. If a message is lost, the sidecar learns of the recall from
    // its next report.
    await Promise.all(recalled.map((id) => invalidations.publish({ kind: 'lease', id })))
  }

interface OfUser<Call> {
  readonly call: Call
  readonly user: UserAccess
}

const withUsers = <Call extends Subject>(
  calls: readonly Call[],
  states: ReadonlyMap<string, UserAccess>,
): OfUser<Call>[] =>
  calls.flatMap((call) => {
    const user = states.get(subjectOf(call))
    return user ? [{ call, user }] : []
  })

const keyOf = ({ appId, userId }: UserAccess): UserKey => ({ appId, userId })
const activeKey = (user: UserAccess) => ({ ...keyOf(user), isActive: user.status === 'active' })

/** The result of a call: the answer with its user, or why there is no user. */
export type Settled<Answer> =
  | { readonly answer: Answer; readonly user: UserAccess }
  | { readonly answer: null; readonly denial: Reason }

/**
 * Returns the results of calls, in order. A call without a user, or without an account, has no
 * answer.
 */
function inOrder<Call extends Subject, Answer>(
  calls: readonly Call[],
  {
    indexed,
    answers,
    denials,
  }: {
    readonly indexed: readonly OfUser<Call>[]
    readonly answers: readonly (Answer | null)[]
    readonly denials: ReadonlyMap<string, Reason>
  },
): Settled<Answer>[] {
  const byCall = new Map<Call, Settled<Answer>>()
  for (const [index, { call, user }] of indexed.entries()) {
    const answer = answers[index]
    if (answer) byCall.set(call, { answer, user })
  }
  return calls.map(
    (call) =>
      byCall.get(call) ?? { answer: null, denial: denials.get(subjectOf(call)) ?? 'NOT_FOUND' },
  )
}

function first<T>(items: readonly T[]): T {
  const [item] = items
  if (item === undefined) throw new Error('an empty list')
  return item
}
