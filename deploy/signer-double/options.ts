import type { HeaderLine } from './wire/go-headers.ts'
import type { Mode } from './dialect.ts'
import type { Faults, Sink } from './events/lossy-queue.ts'
import type { Orchestrator } from './wire/orchestrator.ts'
import { type Rational, rational } from './wire/rational.ts'
import type { Clock } from './wire/time.ts'

export type SignerDoubleOptions = Readonly<{
  /** Default `go-livepeer`. */
  mode?: Mode
  /** Default 0: a free port. */
  port?: number
  /** Default 127.0.0.1. */
  host?: string
  /** Default: no webhook, every payment is allowed. */
  webhook?: Readonly<{
    url: string
    headers?: readonly HeaderLine[]
    /** Milliseconds. Default 5,000, the signer's. */
    budgetMs?: number
  }>
  /** Expected value of one ticket in wei. Default 100,000,000,000. */
  ev?: bigint | Rational
  /** Members of the orchestrator that `pay` sends. */
  orchestrator?: Partial<Orchestrator>
  /** Nanoseconds since 1970. Default: the machine's clock. */
  now?: Clock
  /** The signer's time zone in webhook states. Default 0. */
  utcOffsetMinutes?: number
  /** MAC key of states. Default: random. */
  stateKey?: Buffer
  /** Receivers of events. Default: none. */
  sinks?: readonly Sink[]
  /** Default: no faults. */
  faults?: Partial<Faults>
  /** Seed of the faults. Default 1. */
  seed?: number
  /** Maximum number of queued events. Default 100, the signer's. */
  queueCapacity?: number
  /** Number of newest signed tickets in `stats()`; 0 keeps none. Default 10,000. */
  keepTickets?: number
  /** Random bytes in hex, for session and request ids. Ids do not depend on the seed by default. */
  newHex?: (bytes: number) => string
  /** Envelope ids. Default: UUIDv4. */
  newId?: () => string
}>

/** One second or one call: with the default price each is worth one ticket. */
export const DEFAULT_EV = 100_000_000_000n

const MAX_UINT_256 = 2n ** 256n - 1n

/**
 * The expected value of a ticket as the chain computes it: face value times win probability over
 * 2^256 - 1, slightly below `ev`. With it the states' balances are fractions of 160 digits and
 * more, as a real signer's are.
 */
export function chainEv(ev: bigint): Rational {
  const faceValue = ev * 1000n
  const winProbability = (ev * MAX_UINT_256) / faceValue
  return rational(faceValue * winProbability, MAX_UINT_256)
}

export const DEFAULT_ORCHESTRATOR: Orchestrator = {
  url: 'https://orchestrator.example:8935',
  address: '0x5be44e23041e93cdf9bcd5a0968524e104e38ae1',
  recipient: '0x5be44e23041e93cdf9bcd5a0968524e104e38ae1',
  recipientRandHash: '0x2b1f6c0e5d7a49a8b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d5e6f7081920',
  authSessionId: 'session',
  pricePerUnit: 100_000_000_000n,
  pixelsPerUnit: 1n,
}
