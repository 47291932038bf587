import { type UsdAttos, usdAttos } from '../../../lib/money.ts'
import type { Db } from '../../../lib/sql.ts'
import { addSeconds } from '../../../lib/time.ts'
import { type Account, toAppTime } from '../../accounts/account.ts'
import { freeAt, unheldAt } from '../../accounts/credits.ts'
import { type AccountRefusal, type SpendRefusal, explainRefusal } from '../../accounts/spending.ts'
import { type Room, networkCost, takeFrom } from '../../exposure/exposure.ts'
import type { Breach, PriceCeiling } from '../../limits/limits.ts'
import type { Tallies } from '../../limits/tally.ts'
import type { Leases } from '../leases.ts'
import type { NewAuthorisation, SidecarProcess } from '../port.ts'
import { type AuthorisedCall, toSessionChange } from '../reports/reporting.ts'
import { reservationSeconds } from './lending.ts'
import type { EscrowDeps, Locking, Payers } from '../locking.ts'

export interface ReserveCall extends AuthorisedCall {
  readonly process: SidecarProcess
  readonly isActive: boolean
  /**
   * Ratio by which the bound at network price was multiplied, scaled by 10^18; null if not sent.
   */
  readonly soldAt: bigint | null
}

export interface ReserveAnswer {
  /**
   * Null if the call is allowed. `price_changed`: its ticket may sell for more than its bound.
   * `not_owner`: another process has the sidecar's id. `owner_debt_ceiling_reached`: the account of
   * the app's owner cannot pay (exposure.ts).
   */
  readonly refusal:
    SpendRefusal | 'user_inactive' | 'limit_exceeded' | 'price_changed' | 'not_owner' | null
  /** Why the owner's account cannot pay; null unless it is the reason. */
  readonly ownerRefusal: AccountRefusal | null
  /** The limit that the call would break. */
  readonly breach: Breach | null
  /** Price ceilings of the call's user, key and plan. */
  readonly ceilings: readonly PriceCeiling[]
  /**
   * A retry may succeed: the money is lent elsewhere and was recalled, or the owner's holds may be
   * lower than their bound.
   */
  readonly isRecalled: boolean
  readonly remaining: UsdAttos
  /** Ratio by which to multiply a bound at network price, scaled by 10^18. */
  readonly retailRatio: bigint
}

export interface ReserveRequest {
  readonly calls: readonly ReserveCall[]
  readonly owners: ReadonlySet<string>
  readonly payers: Payers
}

/** Holds the bounds of single calls. */
export function createReserve({ store, lock, openRooms, prove }: EscrowDeps & Locking) {
  /**
   * Holds the bounds of single calls from any sidecars, in order, as far as they fit into what is
   * free. `owners` is the result of `noteReservations`, `payers` of `findPayers`.
   */
  async function reserve(db: Db, { calls, owners, payers }: ReserveRequest, at: Date) {
    const { find, leases, nextIncluded, ...locked } = await lock(db, calls, {
      at,
      isNextNeeded: true,
      hasLeases: ({ lent }) => lent > 0n,
    })
    const amountOf = ({ bound }: ReserveCall): bigint => bound
    const tallies = await store.loadTallies(
      db,
      calls.filter(find).map((call) => toLimited(call)),
      at,
    )
    const { sold, save } = await openRooms(db, calls, { ...locked, amountOf, payers, at })
    const allowed: StampedCall[] = []
    const answers = calls.map((call): ReserveAnswer | null => {
      const account = find(call)
      if (!account) return null
      const { retailRatio, ceilings: ofPlan, room } = sold(call)
      const network = networkCost(call.bound, call.soldAt ?? retailRatio)
      const common = { leases, tallies, nextIncluded: nextIncluded(call), at }
      const answer = owners.has(processKey(call.process))
        ? hold(call, { ...common, account, retailRatio, room, network })
        : refuse('not_owner')
      if (answer.refusal === null) allowed.push({ ...stamp(call, call.process, at), network })
      const ceilings = [...(tallies?.ceilings(toLimited(call)) ?? []), ...ofPlan]
      return {
        ...answer,
        ceilings,
        retailRatio,
        remaining: unheldAt(account, toAppTime(account, at)),
      }
    })
    if (tallies) await store.saveTallies(db, tallies)
    await store.insertAuthorisations(db, allowed)
    await store.addSessions(
      db,
      allowed.map((call) => toSessionChange(call)),
    )
    const ended = await prove(db, { calls: calls.filter(find), find }, at)
    await save()
    return { answers, recalled: leases.recalledAt(at), ended }
  }

  /**
   * Records, before the transaction of `reserve`, that sidecars are about to decide with core's
   * help. Returns the processes that hold their sidecars' ids.
   */
  async function noteReservations(
    db: Db,
    calls: readonly Pick<ReserveCall, 'process'>[],
    at: Date,
  ): Promise<Set<string>> {
    const processes = new Map(calls.map(({ process }) => [processKey(process), process]))
    const owners = new Set<string>()
    for (const [key, process] of processes)
      if (await store.noteReservation(db, process, at)) owners.add(key)
    return owners
  }

  return { reserve, noteReservations }
}

type HoldAnswer = Omit<ReserveAnswer, 'remaining' | 'ceilings' | 'retailRatio'>

const refuse = (refusal: ReserveAnswer['refusal'], more: Partial<HoldAnswer> = {}): HoldAnswer => ({
  refusal,
  ownerRefusal: null,
  breach: null,
  isRecalled: false,
  ...more,
})

function hold(
  call: ReserveCall,
  { account, leases, tallies, retailRatio, room, network, nextIncluded, at }: Holding,
): HoldAnswer {
  if (!call.isActive) return refuse('user_inactive')
  if (call.soldAt !== null && call.soldAt < retailRatio) return refuse('price_changed')
  const limited = toLimited(call)
  const breach = tallies?.breach(limited, at)
  if (breach) return refuse('limit_exceeded', { breach })
  const own = toAppTime(account, at)
  const until = addSeconds(own, reservationSeconds)
  const free = freeAt(account, { at: own, until, nextIncluded })
  if (call.bound > free) {
    const isRecalled = leases.recall(account, { missing: call.bound - free, at })
    return refuse(explainRefusal(account), { isRecalled })
  }
  if (room && !takeFrom(room, network)) {
    const { isCounted, refusal: ownerRefusal } = room.owner
    return refuse('owner_debt_ceiling_reached', { ownerRefusal, isRecalled: !isCounted })
  }
  tallies?.count(limited, at)
  account.pending = usdAttos(account.pending + call.bound)
  return refuse(null)
}

interface Holding {
  readonly account: Account
  readonly leases: Leases
  readonly tallies: Tallies | null
  readonly retailRatio: bigint
  readonly room: Room | null
  /** The bound at network price. */
  readonly network: UsdAttos
  readonly nextIncluded: bigint
  readonly at: Date
}

const toLimited = (call: AuthorisedCall) => ({ ...call, amount: call.bound })

type StampedCall = AuthorisedCall & NewAuthorisation & { readonly instance: string }

const stamp = (call: AuthorisedCall, { id, instance }: SidecarProcess, at: Date): StampedCall => ({
  ...call,
  sidecarId: id,
  instance,
  authorisedAt: at,
})

const processKey = ({ id, instance }: SidecarProcess): string => `${instance} ${id}`
