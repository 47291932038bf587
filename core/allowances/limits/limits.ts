import type { UsdAttos } from '../../lib/money.ts'
import type { AppId, UserId } from '../../platform/ids.ts'

/** Limits that owners set for a user or for a key (docs/escrow.md). Null where there is no such limit. */
export interface Limits {
  /** By the UTC day. */
  readonly day: UsdAttos | null
  readonly session: UsdAttos | null
  /** By the minute of the clock. */
  readonly minuteCalls: number | null
  /** Sessions with a call within `sessionIdleMs`. */
  readonly sessions: number | null
  readonly ceilings: readonly PriceCeiling[]
}

export const noLimits: Limits = {
  day: null,
  session: null,
  minuteCalls: null,
  sessions: null,
  ceilings: [],
}

export const sessionTypes = ['live', 'lv2v', 'fixed'] as const
export type SessionType = (typeof sessionTypes)[number]

export interface PriceCeiling {
  readonly type: SessionType
  /** The application of the signer's state; empty for every one. */
  readonly app: string
  /** Wei for one second, 720p pixel second or unit. */
  readonly maxWei: bigint
}

/** A user, or one of its keys. */
export interface LimitedSubject {
  readonly appId: AppId
  readonly userId: UserId
  /** Null for the user itself. */
  readonly keyId: string | null
}

/** A limit as refusals name it. */
export type LimitName =
  'usd_per_day' | 'usd_per_session' | 'calls_per_minute' | 'concurrent_sessions' | 'max_price'

/** A limit that a call would break. */
export interface Breach {
  readonly limit: LimitName
  /** From when on the limit may allow the call; null when waiting does not help. */
  readonly endsAt: Date | null
}

/** The ceilings that fit a call. All of them apply, so the lowest counts. */
export const ceilingsFor = (
  ceilings: readonly PriceCeiling[],
  { sessionType, app }: { readonly sessionType: string; readonly app: string },
): PriceCeiling[] =>
  ceilings.filter(
    (ceiling) => ceiling.type === sessionType && (ceiling.app === '' || ceiling.app === app),
  )
