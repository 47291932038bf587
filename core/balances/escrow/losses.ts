import type { UserKey } from '../../shared/ids.ts'
import { uuidV7 } from '../../lib/crypto.ts'
import { usdAttos } from '../../lib/money.ts'
import type { Db } from '../../lib/sql.ts'
import { addSeconds } from '../../lib/time.ts'
import type { Total } from '../../metering/ingest/charges.ts'
import { type Account, toAppTime } from '../accounts/account.ts'
import { adjust } from '../accounts/adjusting.ts'
import type { CreditDebit } from '../accounts/chain.ts'
import type { AccountStore } from '../accounts/accounts.ts'
import type { CountChange } from '../limits/enforcement.ts'
import type {
  EndState,
  EndedAuthorisation,
  EscrowStore,
  SessionChange,
  StoredAuthorisation,
} from './port.ts'
import { totals } from './session-sums.ts'

export interface LossesDeps {
  readonly store: Pick<EscrowStore, 'endAuthorisations' | 'addSessions' | 'correctCounts'>
  readonly insertAdjustment: AccountStore['insertAdjustment']
  /** `write_off` frees what a lost call held; `charge` debits it as an estimate. */
  readonly lostTickets: 'write_off' | 'charge'
}

/** Sums of the ended authorisations, by end state. */
export type EndSums = Readonly<Record<EndState, Total>>

/**
 * A ticket that comes within this time after its call was lost or released is counted separately.
 */
export const retentionDays = 30
const retentionSeconds = retentionDays * 86_400

type FindAccount = (user: UserKey) => Account | undefined

/**
 * Ends authorisations without a ticket. A proven one is lost, any other is released
 * (docs/escrow.md).
 */
export function createLosses({ store, insertAdjustment, lostTickets }: LossesDeps) {
  /**
   * Ends authorisations of locked accounts, which the caller saves. An authorisation that was
   * released before and is now proven holds nothing.
   */
  async function end(
    db: Db,
    { authorisations, find }: { authorisations: readonly StoredAuthorisation[]; find: FindAccount },
    at: Date,
  ): Promise<EndSums> {
    for (const authorisation of authorisations) free(find(authorisation), authorisation, at)
    const charged = authorisations.filter((one) => stateOf(one) === 'charged')
    const drawn = await estimate(db, { charged, find }, at)
    const ended = authorisations.map((authorisation) => ({
      authorisation,
      state: stateOf(authorisation),
      drawn: drawn.get(authorisation) ?? null,
    }))
    if (ended.length > 0) await store.endAuthorisations(db, ended, at)
    await store.correctCounts(db, ended.map(toCountChange))
    if (ended.length > 0) await store.addSessions(db, ended.map(toSessionChange))
    return sumEnded(ended)
  }

  const stateOf = ({ isProven }: StoredAuthorisation): EndState =>
    isProven ? (lostTickets === 'charge' ? 'charged' : 'lost') : 'released'

  /** Debits the bounds of lost calls, in one adjustment per user. Returns what each call drew. */
  async function estimate(
    db: Db,
    { charged, find }: { charged: readonly StoredAuthorisation[]; find: FindAccount },
    at: Date,
  ): Promise<ReadonlyMap<StoredAuthorisation, readonly CreditDebit[]>> {
    const drawn = new Map<StoredAuthorisation, readonly CreditDebit[]>()
    for (const [account, calls] of Map.groupBy(charged, (one) => find(one))) {
      const bounds = calls.reduce((sum, { bound }) => sum + bound, 0n)
      if (!account || bounds === 0n) continue
      const adjustment = {
        id: uuidV7(at.getTime()),
        amount: usdAttos(-bounds),
        reason: 'estimated cost of signed calls whose tickets are lost',
        author: 'tollgate',
        eventId: null,
        at: toAppTime(account, at),
      }
      adjust(account, { ...adjustment, feature: null })
      await insertAdjustment(db, account, adjustment)
      const entry = account.entries.find(({ causeId }) => causeId === adjustment.id)
      shareDraws(entry?.draws ?? [], calls).forEach((draws, call) => drawn.set(call, draws))
    }
    return drawn
  }

  return { end }
}

export type Losses = ReturnType<typeof createLosses>

/** Divides the draws among the calls in order: the first takes its bound, then the next. */
function shareDraws(
  draws: readonly CreditDebit[],
  calls: readonly StoredAuthorisation[],
): ReadonlyMap<StoredAuthorisation, CreditDebit[]> {
  const left = draws.map(({ creditId, amount }) => ({ creditId, amount: 0n - amount }))
  return new Map(
    calls.map((call) => {
      let open: bigint = call.bound
      const own = left.flatMap((draw) => {
        const part = draw.amount < open ? draw.amount : open
        draw.amount -= part
        open -= part
        return part > 0n ? [{ creditId: draw.creditId, amount: usdAttos(part) }] : []
      })
      return [call, own]
    }),
  )
}

function free(account: Account | undefined, { state, bound }: StoredAuthorisation, at: Date): void {
  if (!account) return
  if (state === 'pending') account.pending = usdAttos(account.pending - bound)
  account.lateUntil = addSeconds(at, retentionSeconds)
}

function toSessionChange({ authorisation, state }: EndedAuthorisation): SessionChange {
  const { appId, userId, sessionId, sessionType, bound } = authorisation
  const wasReleased = authorisation.state !== 'pending'
  return {
    appId,
    userId,
    sessionId,
    sessionType,
    at: authorisation.authorisedAt,
    calls: [],
    instance: null,
    added: totals({
      ...(wasReleased && { released: { count: -1, amount: usdAttos(-bound) } }),
      [state]: { count: 1, amount: bound },
    }),
  }
}

/**
 * Limits do not count released calls, which were perhaps never signed. Lost calls were signed, so
 * they count.
 */
const toCountChange = ({ authorisation, state }: EndedAuthorisation): CountChange => ({
  ...authorisation,
  from: usdAttos(authorisation.state === 'pending' ? authorisation.bound : 0n),
  to: usdAttos(state === 'released' ? 0n : authorisation.bound),
})

function sumEnded(ended: readonly EndedAuthorisation[]): EndSums {
  const sum = (endState: EndState): Total => {
    const ones = ended.filter(({ state }) => state === endState)
    const amount = ones.reduce((total, { authorisation }) => total + authorisation.bound, 0n)
    return { count: ones.length, amount: usdAttos(amount) }
  }
  return { lost: sum('lost'), charged: sum('charged'), released: sum('released') }
}
