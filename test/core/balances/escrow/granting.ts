import { randomUUID } from 'node:crypto'
import {
  Authorisation,
  LendCall,
  RefusedCall,
  type ReserveAnswer,
  ReturnedLease,
  SessionCalls,
  UserReport,
} from '../../../../proto/gen/ts-proto/tollgate/balances/v1/escrow.ts'
import type { Rpcs, TestApp, TestCore } from '../../support.ts'

/** Converts dollars to atto-dollars, as text. */
export const attos = (dollars: number): string =>
  `${BigInt(Math.round(dollars * 1e9)) * 1_000_000_000n}`
export const dollars = (text: string | undefined): number => Number(text) / 1e18

export interface CallOptions {
  readonly sequence?: number
  readonly session?: string
  /** Seconds on the signer's clock. */
  readonly at?: number
  readonly bound?: number
  readonly more?: Partial<Authorisation>
}

/** Starts one process of a sidecar, as core sees it. */
export async function startSidecar(rpcs: Rpcs, id: string = `sidecar-${randomUUID()}`) {
  const sidecar = { id, instance: randomUUID() }
  let number = 0n

  const heartbeat = () => rpcs.report({ sidecar, number: 0n })

  async function lend(app: TestApp, user: string, call: Partial<LendCall> = {}) {
    const { answers } = await rpcs.lend({ sidecar, calls: [lendCall(app, user, call)] })
    const [answer] = answers
    if (!answer) throw new Error('no answer')
    return answer
  }

  const lendMany = (calls: readonly LendCall[]) => rpcs.lend({ sidecar, calls: [...calls] })

  async function reserve(
    app: TestApp,
    user: string,
    call: CallOptions = {},
  ): Promise<ReserveAnswer> {
    const { answers } = await rpcs.reserve({
      sidecar,
      calls: [{ clientId: app.clientId, externalUserId: user, authorisation: authorisation(call) }],
    })
    const [answer] = answers
    if (!answer) throw new Error('no answer')
    return answer
  }

  interface Content {
    /** Reported separately. */
    readonly calls?: readonly Authorisation[]
    readonly sessions?: readonly SessionCalls[]
    readonly refused?: readonly Partial<RefusedCall>[]
    readonly returned?: readonly Partial<ReturnedLease>[]
  }

  const userReport = (app: TestApp, user: string, content: Content) => ({
    clientId: app.clientId,
    externalUserId: user,
    sessions: [...(content.calls ?? []).map(oneCall), ...(content.sessions ?? [])],
    refused: (content.refused ?? []).map((call) => RefusedCall.fromPartial(call)),
    returned: (content.returned ?? []).map((lease) => ReturnedLease.fromPartial(lease)),
  })

  /** Sends the next batch, or batch number `batch`. */
  function report(app: TestApp, user: string, content: Content & { batch?: bigint }) {
    if (content.batch === undefined) number += 1n
    return rpcs.report({
      sidecar,
      number: content.batch ?? number,
      users: [UserReport.fromPartial(userReport(app, user, content))],
    })
  }

  const stop = () => rpcs.report({ sidecar, number: 0n, stopped: true })

  await heartbeat()
  return { sidecar, heartbeat, lend, lendMany, reserve, report, stop }
}

export type TestSidecar = Awaited<ReturnType<typeof startSidecar>>

export const lendCall = (app: TestApp, user: string, call: Partial<LendCall> = {}): LendCall =>
  LendCall.fromPartial({
    clientId: app.clientId,
    externalUserId: user,
    usedUsdAttos: '0',
    boundUsdAttos: '0',
    spendingUsdAttos: '0',
    ...call,
  })

export const authorisation = ({
  sequence = 1,
  session = 's1',
  at = 1_773_144_000,
  bound = 0.1,
  more = {},
}: CallOptions = {}): Authorisation =>
  Authorisation.fromPartial({
    sessionId: session,
    sequence: BigInt(sequence),
    signedSeconds: BigInt(at),
    signedNanos: 250_000_789,
    type: 'live',
    boundUsdAttos: attos(bound),
    authorisedAt: BigInt(at) * 1000n,
    ...more,
  })

/** Returns a report of one call. */
const oneCall = (call: Authorisation): SessionCalls =>
  SessionCalls.fromPartial({
    leaseId: call.leaseId,
    sessionId: call.sessionId,
    sequence: call.sequence,
    type: call.type,
    signedMicros: [call.signedSeconds * 1_000_000n + BigInt(Math.floor(call.signedNanos / 1_000))],
    boundUsdNanos: [BigInt(call.boundUsdAttos) / 1_000_000_000n],
    keyId: call.keyId,
    approximate: call.approximate,
    offline: call.offline,
    firstSeconds: call.signedSeconds,
    firstNanos: call.signedNanos,
    lastSeconds: call.signedSeconds,
    lastNanos: call.signedNanos,
    firstAgeMillis: call.ageMillis,
    lastAgeMillis: call.ageMillis,
  })

/**
 * Reads a user's money from the database, in dollars. Throws if it differs from the sums over
 * leases and authorisations.
 */
export async function moneyOf(core: TestCore, app: TestApp, user: string) {
  const { rows } = await core.sql.query<Record<string, string>>(
    `select b.balance_attos as balance, b.lent_attos as lent, b.pending_attos as pending,
            (select coalesce(sum(amount_attos - used_attos), 0) from leases l
             where l.app_id = b.app_id and l.user_id = b.user_id) as leases,
            (select coalesce(sum(bound_attos), 0) from authorisations a
             where a.app_id = b.app_id and a.user_id = b.user_id and a.state = 'pending') as authorisations
     from balances b
     join end_users u on u.app_id = b.app_id and u.id = b.user_id
     join clients c on c.app_id = b.app_id and c.kind = 'public'
     where c.client_id = $1 and u.external_user_id = $2`,
    [app.clientId, user],
  )
  const { leases, authorisations, ...figures } = rows[0] ?? {}
  if (leases !== figures['lent'] || authorisations !== figures['pending'])
    throw new Error(`sums differ: ${JSON.stringify(rows[0])}`)
  return Object.fromEntries(
    Object.entries(figures).map(([name, text]) => [name, dollars(text)]),
  ) as { balance: number; lent: number; pending: number }
}
