import { usdAttos } from '../../../lib/money.ts'
import { appId, userId } from '../../../shared/ids.ts'
import type { StoredAuthorisation } from '../port.ts'
import { fromMultirange } from '../reports/number-ranges.ts'

/** Sidecars count in nano-dollars. */
export const attosPerNano = 1_000_000_000n

/** A row of `authorisations`, with `open_numbers` as text. */
export interface AuthorisationRow {
  app_id: string
  user_id: string
  session_id: string
  sequence_number: bigint
  signed_micros: bigint
  id: bigint
  sidecar_id: string
  key_id: string | null
  session_type: string
  bound_attos: string
  authorised_at: Date
  state: StoredAuthorisation['state']
  proven: boolean
  ticketed: boolean
  approximate: boolean
  offline: boolean
  last_at: Date | null
  call_micros: string[] | null
  call_nanos: string[] | null
  open_numbers: string | null
}

export const authorisationFromRow = (row: AuthorisationRow): StoredAuthorisation => ({
  appId: appId(row.app_id),
  userId: userId(row.user_id),
  sessionId: row.session_id,
  sequence: row.sequence_number,
  signedMicros: row.signed_micros,
  id: row.id,
  sidecarId: row.sidecar_id,
  keyId: row.key_id,
  sessionType: row.session_type,
  bound: usdAttos(BigInt(row.bound_attos)),
  authorisedAt: row.authorised_at,
  state: row.state,
  isProven: row.proven,
  isTicketed: row.ticketed,
  isApproximate: row.approximate,
  isOffline: row.offline,
  ...(row.last_at && { lastAt: row.last_at }),
  ...runFromRow(row),
})

const runFromRow = ({ call_micros, call_nanos, open_numbers }: AuthorisationRow) =>
  call_micros && call_nanos && open_numbers !== null
    ? {
        run: {
          micros: call_micros.map(BigInt),
          bounds: call_nanos.map((nanos) => usdAttos(BigInt(nanos) * attosPerNano)),
          open: fromMultirange(open_numbers),
        },
      }
    : {}
