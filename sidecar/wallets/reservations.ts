import type {
  PriceCeiling,
  ReserveAnswer,
  ReserveCall,
  SidecarProcess,
} from '../../proto/gen/ts-proto/tollgate/balances/v1/escrow.ts'
import {
  type Refusal,
  limitExceeded,
  refusalWithoutUser,
  refusals,
  ownerRefusal,
  spentRefusal,
} from '../decision/refusals.ts'
import type { Gather } from '../core/batcher.ts'
import type { Versions } from '../cache/cached-state.ts'
import type { Account, Accounts } from './accounts.ts'
import type { EscrowCore } from '../core/escrow.ts'
import { nanosDown } from './nanos.ts'
import type { AllowedCall } from './session-calls.ts'
import { toAuthorisation } from './report-entries.ts'
import type { Reports } from './reports.ts'

export interface ReservationsOptions {
  readonly core: Pick<EscrowCore, 'reserve'>
  readonly process: SidecarProcess
  readonly accounts: Accounts
  readonly versions: Versions
  readonly reports: Reports
  readonly mono: () => number
  readonly sleep: (ms: number) => Promise<unknown>
  readonly gather: Gather
}

/** A call with the account's `retailRatio` at the time its bound was computed. */
export type ReservedCall = AllowedCall & Pick<Account, 'retailRatio'>

/** Core's reason not to reserve a call, or null; and the price ceilings for the call. */
export interface Reservation {
  readonly refusal: Refusal | null
  /**
   * Refused because the plan's retail ratio is higher than the one in the bound; the account now
   * has the new one.
   */
  readonly isRepriced: boolean
  readonly ceilings: readonly PriceCeiling[]
}

const priceChanged = 'price_changed'
const recallMs = 100
const maxTries = 4
const maxCalls = 500

/**
 * Reserves single calls at core when no lease covers them: near the end of a balance, and under
 * limits.
 */
export function createReservations(options: ReservationsOptions) {
  const { core, process, accounts, versions, reports, mono, sleep } = options
  const reserveCall = options.gather<ReserveCall, ReserveAnswer>({
    send: async (calls) => (await core.reserve({ sidecar: process, calls })).answers,
    max: maxCalls,
  })

  /** Retries while the money is lent to other processes, because core recalls it. */
  async function reserve(account: Account, call: ReservedCall): Promise<Reservation> {
    await reports.join()
    const { clientId, externalUserId } = account
    const retailRatio = call.retailRatio === null ? '' : String(call.retailRatio)
    const authorisation = { ...toAuthorisation(call), retailRatio }
    for (let tries = 1; ; tries++) {
      // Report the previous call first, because this call proves it.
      await reports.reported(account)
      await reports.returned(account)
      const read = { at: mono(), version: versions.current() }
      const answer = await reserveCall({ clientId, externalUserId, authorisation })
      learn(account, answer, read)
      const { refusal, recalled, ceilings } = answer
      if (refusal === '' || !recalled || tries === maxTries)
        return { refusal: refusalOf(answer), isRepriced: refusal === priceChanged, ceilings }
      await sleep(recallMs)
    }
  }

  function learn(
    account: Account,
    answer: ReserveAnswer,
    read: { at: number; version: number },
  ): void {
    if (answer.userId === '') return accounts.learnUnknown(account, answer.refusal, read)
    const active = answer.refusal !== 'user_inactive'
    accounts.learn(account, { ...answer, active }, read)
    account.remaining = nanosDown(answer.remainingUsdAttos)
    account.remainingAt = read.at
  }

  return { reserve }
}

export type Reservations = ReturnType<typeof createReservations>

function refusalOf({
  refusal,
  ownerRefusal: ofOwner,
  limit,
  limitEndsAt,
}: ReserveAnswer): Refusal | null {
  if (refusal === '') return null
  if (refusal === 'owner_debt_ceiling_reached') return ownerRefusal(ofOwner)
  const spent = spentRefusal(refusal)
  if (refusal === spent.code) return spent
  if (refusal === 'user_inactive') return refusals.userInactive
  if (refusal === priceChanged) return refusals.billingUnavailable
  return refusal === 'limit_exceeded'
    ? limitExceeded(limit, Number(limitEndsAt))
    : refusalWithoutUser(refusal)
}
