import { createLog } from '../../../core/lib/log.ts'
import { DomainError } from '../../../proto/errors.ts'
import type { ReportRequest } from '../../../proto/gen/ts-proto/tollgate/balances/v1/escrow.ts'
import { type Account, createAccounts } from '../../../sidecar/wallets/accounts.ts'
import { type AllowedCall, createSessionMemory } from '../../../sidecar/wallets/session-calls.ts'
import { createReports } from '../../../sidecar/wallets/reports.ts'
import { type Session, readSession } from '../../../sidecar/signer-state/session.ts'
import { createVersions } from '../../../sidecar/cache/cached-state.ts'
import { firstCall } from '../signer-bodies.ts'

const process = { id: 'one', instance: '7b0c2b3e-3f0e-4a53-9a0c-6f1c8b1f2a11' }

/** Reports to a core double, and a user with calls to report. */
export function world() {
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

export const leaseOf = () => ({
  id: 'lease',
  amount: 20,
  used: 7,
  renewedAt: 0,
  endsAt: 0,
  renewAbove: 0,
  renewAt: 0,
  usedAt: 0,
})
