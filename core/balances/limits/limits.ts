import type { UsdAttos } from '../../lib/money.ts'
import type { AppId, UserId } from '../../shared/ids.ts'

/** Limits that owners set for a user or a key (docs/limits-of-users.md). Null means no limit. */
export interface Limits {
  /** Per UTC day. */
  readonly day: UsdAttos | null
  readonly session: UsdAttos | null
  /** Per minute of the clock. */
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
  /** The application in the signer's state; empty for all applications. */
  readonly app: string
  /** Wei per second, per 720p pixel second, or per unit. */
  readonly maxWei: bigint
}

/** A user, or one of its keys. */
export interface LimitedSubject {
  readonly appId: AppId
  readonly userId: UserId
  /** Null for the user itself. */
  readonly keyId: string | null
}

/** The name of a limit in refusals. */
export type LimitName =
  'usd_per_day' | 'usd_per_session' | 'calls_per_minute' | 'concurrent_sessions' | 'max_price'

/** A limit that a call would break. */
export interface Breach {
  readonly limit: LimitName
  /** When the limit may allow the call again; null if waiting does not help. */
  readonly endsAt: Date | null
}

/** Returns the ceilings that apply to a call. The lowest counts. */
export const ceilingsFor = (
  ceilings: readonly PriceCeiling[],
  { sessionType, app }: { readonly sessionType: string; readonly app: string },
): PriceCeiling[] =>
  ceilings.filter(
    (ceiling) => ceiling.type === sessionType && (ceiling.app === '' || ceiling.app === app),
  )
