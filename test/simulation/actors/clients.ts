import type { EthRate } from '../../../core/lib/money.ts'
import type { Random } from '../../support/random.ts'
import type { Broker } from './broker.ts'
import type { History } from '../history.ts'
import type { Network } from './network.ts'
import type { Fleet } from './fleet.ts'
import type { Plan, SessionPlan } from '../plan.ts'
import type { Scheduler } from '../scheduler.ts'
import type { SidecarAnswer, SidecarReplica } from './sidecar.ts'
import {
  type SignerCall,
  type SignerSession,
  type SignerState,
  describe,
  signerCall,
} from './signer.ts'
import type { AllowedCall, Truth } from '../truth.ts'
import type { World } from './world.ts'

export interface ClientsDeps {
  readonly plan: Plan
  readonly scheduler: Scheduler
  readonly random: Random
  readonly network: Network
  readonly fleet: Fleet
  readonly broker: Broker
  readonly truth: Truth
  readonly world: World
  readonly history: History
  readonly onAnswer: (call: SignerCall, answer: SidecarAnswer) => void
}

export interface ClientCall {
  readonly session: number
  readonly sidecar: number
  readonly back: number | null
  /** The signer fails after the call was allowed. */
  readonly isUnsigned: boolean
}

/** How long the signer waits for the webhook. */
const webhookMs = 5_000

/**
 * Clients and the signers that they call. For each payment, the signer requests a decision from a
 * sidecar.
 */
export function createClients(deps: ClientsDeps) {
  const { plan, scheduler, random, network, fleet, broker, truth, world, history } = deps
  const sessions: SignerSession[] = plan.world.sessions.map((_, index) => newSession(index))
  /** Calls that a sidecar is deciding about. */
  const waiting = new Set<SignerCall>()

  function newSession(index: number): SignerSession {
    const session = plan.world.sessions[index]
    if (!session) throw new Error(`no session ${index}`)
    return { id: random.hex(8), plan: session, authId: world.authIdOf(session.user), states: [] }
  }

  /** Makes one call of a client. Does nothing if its signer is down. */
  function call({ session: index, sidecar, back, isUnsigned }: ClientCall): void {
    if (back === null) sessions[index] = newSession(index)
    const session = sessions[index]
    if (!session) return
    const { states } = session
    const state = states[Math.max(0, states.length - 1 - (back ?? 0))] ?? null
    start({ session, state, sidecar }, (call) => {
      if (!isUnsigned) sign(call)
    })
  }

  /** Makes one call of a new `fixed` session that costs `attos` atto-dollars. */
  function spend(user: number, attos: bigint, onAllowed: () => void): void {
    const rate = world.published.at(-1)?.rate ?? 1n
    const ratio = world.ratioOf(world.userOf(user).userId)
    const plan: SessionPlan = {
      user,
      signer: 0,
      type: 'fixed',
      price: (attos * 10n ** 36n) / (rate * ratio),
      units: 1n,
      untypedUnits: 1n,
      isOld: false,
    }
    const session = { id: random.hex(8), plan, authId: world.authIdOf(user), states: [] }
    start({ session, state: null, sidecar: 0 }, onAllowed)
  }

  interface Start {
    readonly session: SignerSession
    readonly state: SignerState | null
    readonly sidecar: number
  }

  function start({ session, state, sidecar }: Start, onAllowed: (call: AllowedCall) => void): void {
    const signer = fleet.signers[session.plan.signer % fleet.signers.length]
    if (!signer?.isAlive) return
    scheduler.schedule(signer, random.below(3), () => {
      const signed = signerCall(session, state, { at: scheduler.now(), process: signer, random })
      const replica = fleet.sidecar(sidecar)
      if (!replica?.process.isAlive) return
      let isOver = false
      scheduler.schedule(signer, webhookMs, () => void (isOver = true))
      ask(signed, replica, (allowed) => {
        if (!isOver) onAllowed(allowed)
      })
    })
  }

  function ask(
    call: SignerCall,
    replica: SidecarReplica,
    onAllowed: (call: AllowedCall) => void,
  ): void {
    const signer = fleet.signers[call.session.plan.signer % fleet.signers.length]
    if (!signer) return
    network.send(signer, replica.process, () => {
      waiting.add(call)
      const rateThen = replica.toldRate
      void replica.authorize(call.body).then((answer) => {
        waiting.delete(call)
        history.note(scheduler.now(), `${replica.name} ${answerText(call, answer)}`)
        deps.onAnswer(call, answer)
        if (answer.status !== 200) return
        const allowed = allow(call, replica, rateThen)
        network.send(replica.process, signer, () => onAllowed(allowed))
      })
    })
  }

  // A bound is computed once, at the rate known when the call came, or later.
  function allow(call: SignerCall, replica: SidecarReplica, rateThen: EthRate | null): AllowedCall {
    const { userId } = world.userOf(call.session.plan.user)
    const allowed: AllowedCall = {
      ...call,
      userId,
      sidecarId: replica.id,
      instance: replica.instance,
      at: scheduler.now(),
      cost: world.promisedCost(call, lower(rateThen, replica.toldRate)),
      ownerCost: world.promisedOwnerCost(call, lower(rateThen, replica.toldRate)),
      isAcross: world.isAcross(call, scheduler.now()),
      isSigned: false,
      isReported: false,
    }
    truth.allow(allowed)
    return allowed
  }

  function sign(call: AllowedCall): void {
    call.isSigned = true
    const { sequence, lastUpdate, session } = call
    session.states.push({ sequence, lastUpdate })
    broker.emit(call)
  }

  return { call, spend, waiting }
}

export type Clients = ReturnType<typeof createClients>

function answerText(call: SignerCall, { status, code }: SidecarAnswer): string {
  const { type, user } = call.session.plan
  const verdict = status === 200 ? 'allows' : `refuses (${status} ${code})`
  return `${verdict} ${describe(call)} (${type || 'untyped'}, user ${user}), ${call.feeWei} wei`
}

const lower = (a: EthRate | null, b: EthRate | null): EthRate | null =>
  a !== null && (b === null || a < b) ? a : b
