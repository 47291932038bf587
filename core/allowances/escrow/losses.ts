import { uuidV7 } from '../../lib/crypto.ts'
import { usdAttos } from '../../lib/money.ts'
import type { Db } from '../../lib/sql.ts'
import { addSeconds } from '../../lib/time.ts'
import type { Total } from '../../metering/ingest/charges.ts'
import { type Account, adjust } from '../account.ts'
import type { AccountStore } from '../ledger.ts'
import type { CountChange } from '../limits/enforcement.ts'
import type { EndState, EscrowStore, SessionChange, StoredAuthorisation, UserKey } from './port.ts'
import { totals } from './session-sums.ts'

export interface LossesDeps {
  readonly store: Pick<EscrowStore, 'endAuthorisations' | 'addSessions' | 'correctCounts'>
  readonly insertAdjustment: AccountStore['insertAdjustment']
  /** `write_off` frees what a lost call held, `charge` debits it as an estimate. */
  readonly lostTickets: 'write_off' | 'charge'
}

/** What ended, by how. */
export type EndSums = Readonly<Record<EndState, Total>>

/** A ticket that comes within this time after its call was lost or released is told apart from others. */
export const retentionDays = 30
const retentionSeconds = retentionDays * 86_400

type FindAccount = (user: UserKey) => Account | undefined

/** Ends authorisations whose ticket has not come: a proven one is lost, another is released (docs/escrow.md). */
export function createLosses({ store, insertAdjustment, lostTickets }: LossesDeps) {
  /** Of locked accounts, which the caller saves. Those that were released and are proven now have held nothing since. */
  async function end(
    db: Db,
    { authorisations, find }: { authorisations: readonly StoredAuthorisation[]; find: FindAccount },
    at: Date,
  ): Promise<EndSums> {
    const ended = authorisations.map((authorisation) => ({
      authorisation,
      state: stateOf(authorisation),
    }))
    for (const { authorisation } of ended) free(find(authorisation), authorisation, at)
    if (ended.length > 0) await store.endAuthorisations(db, ended, at)
    await store.correctCounts(db, ended.map(toCountChange))
    await estimate(db, { ended, find }, at)
    if (ended.length > 0) await store.addSessions(db, ended.map(toSessionChange))
    return sumEnded(ended)
  }

  const stateOf = ({ isProven }: StoredAuthorisation): EndState =>
    isProven ? (lostTickets === 'charge' ? 'charged' : 'lost') : 'released'

  /** Debits the bounds of lost calls, in one adjustment for each user. */
  async function estimate(
    db: Db,
    { ended, find }: { ended: readonly Ended[]; find: FindAccount },
    at: Date,
  ): Promise<void> {
    const charged = ended.filter(({ state }) => state === 'charged')
    for (const ofUser of Map.groupBy(charged, (one) => find(one.authorisation)).entries()) {
      const [account, ones] = ofUser
      const bounds = ones.reduce((sum, { authorisation }) => sum + authorisation.bound, 0n)
      if (!account || bounds === 0n) continue
      const adjustment = {
        id: uuidV7(at.getTime()),
        amount: usdAttos(-bounds),
        reason: 'estimate of calls that were signed and whose tickets are lost',
        author: 'tollgate',
        eventId: null,
        at,
      }
      adjust(account, { ...adjustment, feature: null })
      await insertAdjustment(db, account, adjustment)
    }
  }

  return { end }
}

export type Losses = ReturnType<typeof createLosses>

interface Ended {
  readonly authorisation: StoredAuthorisation
  readonly state: EndState
}

function free(account: Account | undefined, { state, bound }: StoredAuthorisation, at: Date): void {
  if (!account) return
  if (state === 'pending') account.pending = usdAttos(account.pending - bound)
  account.lateUntil = addSeconds(at, retentionSeconds)
}

function toSessionChange({ authorisation, state }: Ended): SessionChange {
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

/** Limits do not count what is released, perhaps never signed; what is lost was signed. */
const toCountChange = ({ authorisation, state }: Ended): CountChange => ({
  ...authorisation,
  from: usdAttos(authorisation.state === 'pending' ? authorisation.bound : 0n),
  to: usdAttos(state === 'released' ? 0n : authorisation.bound),
})

function sumEnded(ended: readonly Ended[]): EndSums {
  const sum = (of: EndState): Total => {
    const ones = ended.filter(({ state }) => state === of)
    const amount = ones.reduce((total, { authorisation }) => total + authorisation.bound, 0n)
    return { count: ones.length, amount: usdAttos(amount) }
  }
  return { lost: sum('lost'), charged: sum('charged'), released: sum('released') }
}
