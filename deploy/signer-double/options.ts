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
  /** Without it everybody is allowed to pay. */
  webhook?: Readonly<{
    url: string
    headers?: readonly HeaderLine[]
    /** Default 5,000, the signer's. */
    budgetMs?: number
  }>
  /** Wei one ticket is expected to be worth. Default 100,000,000,000. */
  ev?: bigint | Rational
  /** Members of the orchestrator that `pay` presents. */
  orchestrator?: Partial<Orchestrator>
  /** Nanoseconds since 1970. Default: the machine's clock. */
  now?: Clock
  /** The signer's time zone in webhook states. Default 0. */
  utcOffsetMinutes?: number
  /** MAC key of states. Default: random. */
  stateKey?: Buffer
  /** Where events go. Default: nowhere. */
  sinks?: readonly Sink[]
  /** Default: none. */
  faults?: Partial<Faults>
  /** Decides about faults, event by event. Default 1. */
  seed?: number
  /** Events that may wait. Default 100, the signer's. */
  queueCapacity?: number
  /** How many signed tickets `stats()` remembers, the newest; 0 switches it off. Default 10,000. */
  keepTickets?: number
  /** Random bytes in hex, for session and request ids. Ids never follow the seed by default. */
  newHex?: (bytes: number) => string
  /** Envelope ids. Default: UUIDv4. */
  newId?: () => string
}>

/** One second, one call: with the default price each of them is worth one ticket. */
export const DEFAULT_EV = 100_000_000_000n

const MAX_UINT_256 = 2n ** 256n - 1n

/**
 * The expected value of a ticket as the chain computes it, face value times win probability over 2^256 - 1, a little below
 * `ev`: with it the states' balances are fractions of 160 digits and more, as a real signer's are.
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
