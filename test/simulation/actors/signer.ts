import { divFloor } from '../../../core/lib/money.ts'
import type { Random } from '../../support/random.ts'
import type { SessionPlan } from '../plan.ts'
import type { Process } from '../scheduler.ts'
import { epochMs } from '../virtual-time.ts'

/**
 * The state that the signer gives to its client. It is signed, so it can be replayed but not
 * changed.
 */
export interface SignerState {
  readonly sequence: number
  /** Time of the call that it answered, in nanoseconds since 1970 by the signer's clock. */
  readonly lastUpdate: bigint
}

/** One payment session, with every state that its client ever received. */
export interface SignerSession {
  readonly id: string
  readonly plan: SessionPlan
  readonly authId: string
  readonly states: SignerState[]
}

/** A call as computed by the signer, before it requests the decision. */
export interface SignerCall {
  readonly session: SignerSession
  readonly sequence: number
  readonly lastUpdate: bigint
  /** The time in its event. With an old signer it differs from the state's. */
  readonly eventTime: bigint
  readonly feeWei: bigint
  /** The webhook's body. */
  readonly body: string
}

const billion = 1_000_000_000n
const million = 1_000_000n
const liveSeconds = 10
const lv2vSeconds = 60
export const pixelsPerSecond = 27_648_000n

/** The signer's arithmetic (docs/signer-webhook.md). The cost of a call is decided only here. */
export function signerCall(
  session: SignerSession,
  state: SignerState | null,
  { at, process, random }: { at: number; process: Process; random: Random },
): SignerCall {
  const { plan } = session
  const ms = epochMs + at + process.skewMs
  const micros = BigInt(Math.floor(ms * 1_000)) + BigInt(random.below(500))
  const lastUpdate = micros * 1_000n + BigInt(random.below(1_000))
  const sequence = state ? state.sequence + 1 : 0
  const seconds = state ? Number(lastUpdate - state.lastUpdate) / 1e9 : null
  const units = unitsOf(plan, seconds)
  const [price, per] = [plan.price * units, plan.units]
  return {
    session,
    sequence,
    lastUpdate,
    eventTime: plan.isOld ? lastUpdate - BigInt(random.below(3_000_000)) : lastUpdate,
    // big.Rat prints the fee rounded to the nearest wei.
    feeWei: divFloor(2n * price + per, 2n * per),
    body: bodyOf({ session, sequence, lastUpdate }, random),
  }
}

function unitsOf({ type, untypedUnits }: SessionPlan, seconds: number | null): bigint {
  if (type === 'live') return BigInt(Math.max(0, Math.ceil(seconds ?? liveSeconds)))
  if (type === 'lv2v')
    return BigInt(Math.max(0, Math.trunc(Number(pixelsPerSecond) * (seconds ?? lv2vSeconds))))
  return type === 'fixed' ? 1n : untypedUnits
}

function bodyOf(
  { session, sequence, lastUpdate }: Pick<SignerCall, 'session' | 'sequence' | 'lastUpdate'>,
  random: Random,
): string {
  const { id, plan, authId } = session
  const { isOld, type } = plan
  const names = isOld ? '' : `"App":"acme/echo","Type":"${type}",`
  return (
    `{"headers":{"Authorization":["Bearer ${authId}"]},"state":{"StateID":"${id}","PMSessionID":"0x2b",` +
    `"LastUpdate":"${instantOf(lastUpdate)}","OrchestratorAddress":"0x5b",${names}"AuthExpiry":0,` +
    `"SenderNonce":${sequence + 1},"Balance":"${random.below(1_000_000)}/7","InitialPricePerUnit":${plan.price},` +
    `"InitialPixelsPerUnit":${plan.units},"SequenceNumber":${sequence},"AuthID":"${sequence === 0 ? '' : authId}"}}`
  )
}

/** Formats an instant by RFC 3339 with nine digits. */
function instantOf(nanos: bigint): string {
  const seconds = new Date(Number(nanos / million)).toISOString().slice(0, 19)
  return `${seconds}.${(nanos % billion).toString().padStart(9, '0')}Z`
}

export const describe = ({ session, sequence }: Pick<SignerCall, 'session' | 'sequence'>): string =>
  `call ${sequence} of session ${session.id}`
