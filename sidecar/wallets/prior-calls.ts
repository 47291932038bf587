import { type Bounds, longestBefore } from './bounds.ts'
import type { Leases } from './leases.ts'
import type { Clocks } from './open-leases.ts'
import type { Reports } from './reports.ts'
import type { FirstCall, SessionMemory } from './session-calls.ts'
import { createSingleFlight } from '../cache/cached-state.ts'
import type { PaidCall } from './payments.ts'

export interface PriorCallsDeps {
  readonly leases: Pick<Leases, 'lend'>
  readonly reports: Pick<Reports, 'reported' | 'takeSession'>
  readonly memory: SessionMemory
  readonly bounds: Bounds
  readonly clocks: Pick<Clocks, 'sleep'>
}

/** Core's answer about a session. */
interface KnownCalls {
  /** The call with the highest number below the requested one; null without one. */
  readonly prior: FirstCall | null
  readonly isShared: boolean
  /**
   * Milliseconds for which another process may have allowed calls of the user that core does not
   * know yet; 0 without such a process.
   */
  readonly unreportedMs: number
}

const reportMs = 250
const maxTries = 3
const anyNumber = Number.MAX_SAFE_INTEGER

/**
 * Bounds calls without a prior call in memory (docs/escrow-bounds.md, "Bounds"). Core's answer is
 * cached, so that replaying one state costs a single request to core. In a shared session each call
 * needs its own request.
 */
export function createPriorCalls({ leases, reports, memory, bounds, clocks }: PriorCallsDeps) {
  const learnOnce = createSingleFlight<KnownCalls>()

  /** Returns the bound of a call for which `boundOf` returned `no_prior_call`. */
  async function boundByCore(call: PaidCall): Promise<number> {
    const { account, session } = call
    // The second request is for an old number of a session that was not in memory.
    for (let tries = 1; tries <= 2 && !memory.isShared(session.id); tries++) {
      const below = memory.find(account, session.id) ? session.sequence : anyNumber
      const key = `${session.id} ${account.authId} ${below}`
      const { unreportedMs } = await learnOnce(key, () => learn(call, below))
      const bound = bounds.boundOf(account, session)
      if (typeof bound === 'number')
        return Math.max(bound, bounds.boundSince(call, session, unreportedMs))
    }
    const { prior, unreportedMs } = await fetchPriorCall(call, session.sequence)
    return bounds.boundSince(call, prior, unreportedMs)
  }

  /**
   * Fetches and stores the prior call of a number. For an unknown session that is its highest call,
   * because the client may hold states of all numbers up to that one. If core knows no call,
   * assumes the longest gap.
   */
  async function learn(call: PaidCall, below: number): Promise<KnownCalls> {
    const { account, session } = call
    const answer =
      below === anyNumber ? await fetchHighestCall(call) : await fetchPriorCall(call, below)
    if (answer.isShared) {
      reports.takeSession(session.id)
      memory.share(session.id)
    } else memory.extend(account, session.id, answer.prior ?? longestBefore(session))
    return answer
  }

  /**
   * Fetches the highest call of an unknown session. Retries, because another process may be about
   * to report it.
   */
  async function fetchHighestCall(call: PaidCall): Promise<KnownCalls> {
    // Report waiting calls first: core does not know them yet, and this process may have evicted
    // them.
    await reports.reported(call.account)
    for (let tries = 1; ; tries++) {
      const answer = await fetchPriorCall(call, anyNumber)
      if (answer.prior || answer.isShared || answer.unreportedMs === 0 || tries === maxTries)
        return answer
      await clocks.sleep(reportMs)
    }
  }

  async function fetchPriorCall(
    { account, session: { id } }: PaidCall,
    sequence: number,
  ): Promise<KnownCalls> {
    const answer = await leases.lend(account, { bound: 0, session: { id, sequence } })
    const call = answer?.priorCall
    return {
      prior: call
        ? { sequence: Number(call.sequence), seconds: Number(call.seconds), nanos: call.nanos }
        : null,
      isShared: answer?.sharedSession ?? false,
      unreportedMs: Number(answer?.unheardMs ?? 0n),
    }
  }

  return { boundByCore }
}
