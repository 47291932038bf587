/** A stored decision. Instants are ISO 8601; amounts are whole nano-dollars, as text. */
export interface DecisionRecord {
  readonly id: string
  readonly sidecarId: string
  readonly decidedAt: string
  readonly durationMicros: number
  readonly status: number
  readonly code: string
  readonly reason: string
  /** refusal, request or sample. */
  readonly occasion: string
  readonly rule: string
  readonly credential: CredentialRecord
  readonly session?: SessionRecord | undefined
  readonly money?: MoneyRecord | undefined
}

export interface CredentialRecord {
  readonly kind: string
  readonly id?: string | undefined
  readonly issuer?: string | undefined
  readonly clientId?: string | undefined
  readonly externalUserId?: string | undefined
  /** memory, redis, core or token. */
  readonly source?: string | undefined
  readonly ageMs?: number | undefined
}

export interface SessionRecord {
  readonly id: string
  readonly type: string
  readonly app: string
  readonly sequence?: string | undefined
  readonly lastUpdate?: string | undefined
  readonly priceWei?: string | undefined
  readonly priceUnits?: string | undefined
  readonly priorCall?: PriorCallRecord | undefined
}

export interface PriorCallRecord {
  readonly sequence?: string | undefined
  readonly at?: string | undefined
  /** sidecar, core, none or assumed. */
  readonly source: string
}

export interface MoneyRecord {
  /** lease, core, offline or none. */
  readonly source: string
  readonly boundUsdNanos?: string | undefined
  readonly remainingUsdNanos?: string | undefined
  readonly remainingAgeMs?: number | undefined
  readonly accessAgeMs?: number | undefined
  readonly lease?: LeaseRecord | undefined
  /** Decimal dollars. */
  readonly usdPerEth?: string | undefined
  readonly rateAgeMs?: number | undefined
  readonly rateRaised?: boolean | undefined
  readonly limit?: string | undefined
  readonly coreAway?: boolean | undefined
}

export interface LeaseRecord {
  readonly id: string
  readonly amountUsdNanos: string
  readonly leftUsdNanos: string
  readonly ageMs: number
  readonly endsInMs: number
}

const textMax = 512

/**
 * Serialises the record as JSON. Truncates texts from callers, such as a session's type, and
 * replaces characters that Postgres or a terminal cannot handle.
 */
export const toJson = (record: DecisionRecord): string =>
  JSON.stringify(record, (_, value: unknown) =>
    typeof value === 'string' ? printable(value) : value,
  )

const printable = (text: string): string =>
  text
    .slice(0, textMax)
    .toWellFormed()
    .replace(/[\p{Cc}\p{Cf}]/gu, '?')
