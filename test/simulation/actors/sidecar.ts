import pino from 'pino'
import { type EthRate, ethRate } from '../../../core/lib/money.ts'
import { DomainError } from '../../../proto/errors.ts'
import type { Rate } from '../../../proto/gen/ts-proto/tollgate/balances/v1/escrow.ts'
import { createEscrow } from '../../../sidecar/wallets/escrow.ts'
import type { EscrowCore } from '../../../sidecar/core/escrow.ts'
import { createAuthorizer } from '../../../sidecar/authorize/decision.ts'
import { parseBody } from '../../../sidecar/decision/request.ts'
import { type BoundIdentity, bindIdentity } from '../../../sidecar/identity/bound-identity.ts'
import type { Presentation } from '../../../sidecar/identity/verifiers/verifier.ts'
import { createVersions } from '../../../sidecar/cache/cached-state.ts'
import type { CoreReplica } from './core.ts'
import type { Mutation } from '../mutations.ts'
import type { Network } from './network.ts'
import type { Plan } from '../plan.ts'
import type { Process, Scheduler } from '../scheduler.ts'
import { epochMs } from '../virtual-time.ts'

export interface SidecarAnswer {
  readonly status: number
  readonly code: string
}

export interface SidecarReplica {
  readonly name: string
  readonly process: Process
  readonly id: string
  readonly instance: string
  authorize(body: string): Promise<SidecarAnswer>
  /** Handles core's message that the leases of this user must be returned. */
  recall(userId: string): void
  /** The same for all users of an app. */
  recallApp(clientId: string): void
  stop(): Promise<void>
  /** The last rate for bounds that core sent to this process; null without one. */
  readonly toldRate: EthRate | null
}

export interface SidecarDeps {
  readonly plan: Plan
  readonly scheduler: Scheduler
  readonly network: Network
  readonly mutation: Mutation
  /** Returns the core that a call reaches now; undefined if all cores are down. */
  readonly core: () => CoreReplica | undefined
}

const log = pino({ level: 'silent' })
// Slower than in production, because there is nothing to do most of the time.
const reportMs = 400
const heartbeatMs = 1_000
const rpcMs = 800
const heartbeatTimeoutMs = 250
// The bounded maps allocate all of their memory at once.
const maxEntries = 64

/** Processes of sidecars: the real escrow and authorizer, with a stub that knows every user. */
export function createSidecars({ plan, scheduler, network, core, mutation }: SidecarDeps) {
  let starts = 0

  function start(process: Process, id: string): SidecarReplica {
    const instance = `00000000-0000-4000-9000-${String(++starts).padStart(12, '0')}`
    const link = createLink(process)
    const ownClocks = {
      mono: () => scheduler.now() - process.suspendedMs,
      wall: () => epochMs + scheduler.now() + process.skewMs,
    }
    const clocks = mutation.clocks?.(ownClocks) ?? ownClocks
    const escrow = createEscrow({
      core: { ...link.core, ...mutation.client?.(link.core) },
      process: { id, instance },
      versions: createVersions({ max: maxEntries }),
      settings: {
        ttlSeconds: 10,
        untyped: plan.world.untypedUsdMicros === null ? null : plan.world.untypedUsdMicros * 1_000,
        offlineUserBudget: 0,
        offlineBudget: 0,
        maxEntries,
      },
      clocks: {
        ...clocks,
        sleep: (ms) =>
          new Promise((resolve) => void scheduler.schedule(process, ms, () => resolve(null))),
      },
      log,
    })
    const authorize = createAuthorizer({
      identities: { resolve: resolver(escrow.accounts) },
      escrow: { ...escrow, bounds: { ...escrow.bounds, ...mutation.bounds?.(escrow) } },
      signingTtlSeconds: 0,
      maxPrice: {},
      metrics: { countFailure: () => {}, countRefusedMoney: () => {} },
      log,
      now: () => new Date(clocks.wall()),
    })
    runLoops(process, escrow)
    return {
      name: process.name,
      process,
      id,
      instance,
      authorize: async (text) => {
        const body = parseBody(text)
        if (!body) throw new Error('the signer sent no JSON')
        const { status, code } = await authorize(body)
        return { status, code }
      },
      recall: (userId) => escrow.leases.recall([userId]),
      recallApp: escrow.leases.recallApp,
      stop: escrow.stop,
      get toldRate() {
        return link.rate()
      },
    }
  }

  function runLoops(process: Process, { reports, leases }: ReturnType<typeof createEscrow>): void {
    const every = (ms: number, work: () => unknown): void => {
      const round = (): void => {
        scheduler.schedule(process, ms, round)
        work()
      }
      scheduler.schedule(process, ms, round)
    }
    void reports.heartbeat()
    every(heartbeatMs, reports.heartbeat)
    every(reportMs, () => {
      if (reports.unreported() > 0) void reports.flush()
      void leases.renewDue()
    })
    every(2_000, leases.returnIdle)
  }

  /** Connects a process to core over the network, to any replica that is up. */
  function createLink(process: Process) {
    let isAway = false
    let rate: EthRate | null = null

    async function call<Response>(
      deadlineMs: number,
      work: (core: CoreReplica) => Promise<Response>,
    ): Promise<Response> {
      try {
        const to = core()
        if (!to) throw new DomainError('UNAVAILABLE', 'core does not answer')
        const response = await network.call({
          from: process,
          to: to.process,
          deadlineMs,
          work: () => work(to),
        })
        isAway = false
        return response
      } catch (error) {
        isAway = error instanceof DomainError && error.reason === 'UNAVAILABLE'
        throw error
      }
    }

    async function remember<Response extends { readonly rate?: Rate | undefined }>(
      answer: Promise<Response>,
    ): Promise<Response> {
      const response = await answer
      rate = response.rate ? ethRate(BigInt(response.rate.usdAttosPerEth)) : null
      return response
    }

    const client: EscrowCore = {
      lend: (request) => remember(call(rpcMs, (to) => to.lend(request))),
      reserve: (request) => call(rpcMs, (to) => to.reserve(request)),
      report: (request) =>
        remember(
          call(request.number === 0n ? heartbeatTimeoutMs : rpcMs, (to) => to.report(request)),
        ),
      within: (work) => work,
      isAway: () => isAway,
    }
    return { core: client, rate: () => rate }
  }

  return { start }
}

type Accounts = ReturnType<typeof createEscrow>['accounts']

/** Uses the `auth_id` of a user as its credential, because authentication is not tested here. */
function resolver({ accountOf }: Accounts) {
  const identities = new Map<string, BoundIdentity>()

  function identityOf(authId: string): BoundIdentity {
    const [clientId = '', externalUserId = ''] = authId.split(':')
    const identity = bindIdentity(
      {
        issuer: 'https://tollgate.example',
        clientId,
        externalUserId,
        keyId: null,
        grants: [],
        issuedAt: null,
        expiresAt: null,
        keepUntil: Infinity,
      },
      epochMs,
    )
    if (!('authId' in identity)) throw new Error('a user without an auth_id')
    identities.set(authId, identity)
    return identity
  }

  return ({ headers }: Presentation) => {
    const values = headers?.['Authorization']
    const text = Array.isArray(values) ? String(values[0]) : ''
    const authId = text.slice('Bearer '.length)
    const identity = identities.get(authId) ?? identityOf(authId)
    return { identity, account: accountOf(authId), source: 'memory' as const }
  }
}
