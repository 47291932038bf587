import { getOrInsert } from '../../lib/maps.ts'
import type { Db, Pool } from '../../lib/sql.ts'
import { type Clocks, realTime } from '../../shared/clocks/clocks.ts'
import type { AppId, UserId } from '../../shared/ids.ts'
import {
  type ParsedBatch,
  readClockOffset,
  readFeature,
  signedAtMs,
  readSession,
} from '../batch/parsed-batch.ts'
import type { Subject } from '../batch/subjects.ts'
import type { CutAt, FeatureName, RatingPorts } from './port.ts'
import { type PricedTicket, type Tariff, networkTariff } from '../batch/tariff.ts'
import {
  type SoldTerms,
  type Timeline,
  type User,
  createPlanHistory,
  termsAt,
} from './plan-history.ts'

/** Prices tickets by the plan version that the user had at signing. */

/**
 * Thrown if users entered a period after their tickets were rated. Nothing was charged; rate them
 * again.
 */
export class StaleRating extends Error {
  readonly users: readonly UserId[]

  constructor(users: readonly UserId[]) {
    super('users have entered a period since their tickets were rated')
    this.users = users
  }
}

/** A user's account, locked by the ledger. */
interface LockedAccount {
  readonly userId: UserId
  readonly periodStart: Date
}

/**
 * Throws StaleRating if an account is in a later period than the last one used to rate its tickets.
 */
export type ConfirmPeriods = (accounts: readonly LockedAccount[]) => void

/** Accepts any period, for tickets with prices fixed elsewhere. */
export const noPeriods: ConfirmPeriods = () => {}

/** Sales of tickets, and a check that they are still valid. */
export interface RatedTickets {
  /** In the order of the tickets. */
  readonly sales: readonly PricedTicket[]
  readonly confirm: ConfirmPeriods
}

/** A ticket that is rated on its own. */
export interface RatedTicket extends Subject, FeatureName {
  /** By the clock of its app. */
  readonly signedMs: number
  /** Milliseconds by which that clock was ahead. */
  readonly aheadMs: number
}

export interface BatchTickets {
  readonly batch: ParsedBatch
  /** Places of tickets of known users, grouped by user. */
  readonly places: Uint32Array
}

export type RatingDeps = RatingPorts & { readonly pool: Pool; readonly clocks?: Clocks }

export function createRating({ pool, ledger, plans, cuts, clocks = realTime }: RatingDeps) {
  const timelines = createPlanHistory({ pool, ledger, plans, clocks })

  /**
   * Rates a batch's tickets by the cached periods of their users. `confirm` checks at charging that
   * these are still current.
   */
  async function rateBatch(tickets: BatchTickets, at: Date): Promise<RatedTickets> {
    const users = usersOf(tickets)
    const known = await timelines.current(users, at)
    const cutAt = await loadCuts(users, { last: lastSigned(tickets), knownAt: at })
    return rateColumns(pool, tickets, { timelines: known, cutAt })
  }

  /** Rates a batch's tickets under locks on their users' accounts. */
  async function rateLocked(db: Db, tickets: BatchTickets, at: Date): Promise<RatedTickets> {
    const users = usersOf(tickets)
    const known = await timelines.locked(db, users, at)
    const cutAt = await loadCuts(users, { last: lastSigned(tickets), knownAt: at })
    return rateColumns(db, tickets, { timelines: known, cutAt })
  }

  async function rateColumns(
    db: Db,
    { batch: { tickets, sessions, features }, places }: BatchTickets,
    facts: Facts,
  ): Promise<RatedTickets> {
    const rate = createRater(facts)
    const sales: PricedTicket[] = []
    for (const place of places) {
      const subject = sessions[readSession(tickets, place)]?.payer.subject
      if (!subject) throw new Error('only tickets of known users are rated')
      const feature = features[readFeature(tickets, place)] ?? nothing
      const times = {
        signedMs: signedAtMs(tickets, place),
        aheadMs: readClockOffset(tickets, place),
      }
      const sale =
        rate(subject, feature, times) ??
        (await rateOld(db, facts, { ...subject, ...feature, ...times }))
      sales.push(sale)
    }
    return { sales, confirm: confirmWith(facts.timelines) }
  }

  /**
   * Rates tickets one by one, with cuts known at `knownAt`. If `isLocked`, locks the users'
   * accounts first.
   */
  async function rateTickets(
    db: Db,
    tickets: readonly RatedTicket[],
    {
      at,
      knownAt,
      isLocked,
    }: { readonly at: Date; readonly knownAt: Date; readonly isLocked: boolean },
  ): Promise<RatedTickets> {
    const users = [
      ...new Map(tickets.map(({ appId, userId }) => [userId, { appId, userId }])).values(),
    ]
    const known = isLocked
      ? await timelines.locked(db, users, at)
      : await timelines.current(users, at)
    const last = new Date(tickets.reduce((ms, ticket) => Math.max(ms, signerMs(ticket)), 0))
    const facts = { timelines: known, cutAt: await loadCuts(users, { last, knownAt }) }
    const rate = createRater(facts)
    const sales: PricedTicket[] = []
    for (const ticket of tickets)
      sales.push(rate(ticket, ticket, ticket) ?? (await rateOld(db, facts, ticket)))
    return { sales, confirm: confirmWith(known) }
  }

  /**
   * Loads cuts. A signer's clock may be ahead of ours: a ticket signed after `knownAt` gets the cut
   * at `knownAt`, because later cuts may still change.
   */
  async function loadCuts(
    users: readonly User[],
    { last, knownAt }: { readonly last: Date; readonly knownAt: Date },
  ): Promise<CutAt> {
    const cutAt = await cuts.load(appsOf(users), earlier(last, knownAt))
    return (app, signedAt) => cutAt(app, earlier(signedAt, knownAt))
  }

  /** Rates a ticket from before the cached periods of its user. */
  async function rateOld(db: Db, { cutAt }: Facts, ticket: RatedTicket): Promise<PricedTicket> {
    const timeline = await timelines.whole(db, ticket)
    const terms = timeline && termsAt(timeline, ticket.signedMs)
    if (!terms) throw new Error(`user ${ticket.userId} has entered no period`)
    const basisPoints = cutAt(ticket.appId, new Date(signerMs(ticket))) ?? 0n
    return { termsId: terms.termsId, tariff: tariffOf(terms.ratioOf(ticket), basisPoints) }
  }

  const { forget, running } = timelines
  return { rateBatch, rateLocked, rateTickets, running, forget }
}

export type Rating = ReturnType<typeof createRating>

const earlier = (a: Date, b: Date): Date => (a < b ? a : b)
type Signing = Pick<RatedTicket, 'signedMs' | 'aheadMs'>

/** Signing time by the real clock, which the platform's cuts use. */
const signerMs = ({ signedMs, aheadMs }: Signing): number => signedMs - aheadMs

const nothing: FeatureName = { pipeline: '', modelId: '' }

interface Facts {
  readonly timelines: ReadonlyMap<UserId, Timeline>
  readonly cutAt: CutAt
}

/**
 * Returns a function that rates single tickets; null for one from before its user's cached periods.
 * Tickets of the same version, feature and cut share one sale, and sales of the same ratio and cut
 * share one tariff, so that prices are computed and encoded once for many tickets.
 */
function createRater({ timelines, cutAt }: Facts) {
  const byTerms = new Map<SoldTerms, Map<FeatureName, PricedTicket>>()
  const tariffs = new Map<bigint, Map<bigint, Tariff>>()
  // Tickets of one user are adjacent.
  let user: { readonly subject: Subject; readonly timeline: Timeline } | null = null

  function timelineOf(subject: Subject): Timeline {
    if (user?.subject === subject) return user.timeline
    const timeline = timelines.get(subject.userId)
    if (!timeline) throw new Error(`user ${subject.userId} has entered no period`)
    user = { subject, timeline }
    return timeline
  }

  function saleOf(terms: SoldTerms, feature: FeatureName, basisPoints: bigint): PricedTicket {
    const ofTerms = getOrInsert(byTerms, terms, () => new Map<FeatureName, PricedTicket>())
    const known = ofTerms.get(feature)
    if (known?.tariff.cutBasisPoints === basisPoints) return known
    const ratio = terms.ratioOf(feature)
    const ofCut = getOrInsert(tariffs, basisPoints, () => new Map<bigint, Tariff>())
    const tariff = getOrInsert(ofCut, ratio, () => tariffOf(ratio, basisPoints))
    const sale = { termsId: terms.termsId, tariff }
    ofTerms.set(feature, sale)
    return sale
  }

  return (subject: Subject, feature: FeatureName, times: Signing): PricedTicket | null => {
    const terms = termsAt(timelineOf(subject), times.signedMs)
    return terms && saleOf(terms, feature, cutAt(subject.appId, new Date(signerMs(times))) ?? 0n)
  }
}

const tariffOf = (ratio: bigint, cutBasisPoints: bigint): Tariff =>
  ratio === networkTariff.ratio && cutBasisPoints === 0n ? networkTariff : { ratio, cutBasisPoints }

function confirmWith(timelines: ReadonlyMap<UserId, Timeline>): ConfirmPeriods {
  return (accounts) => {
    const stale = accounts.filter(
      ({ userId, periodStart }) => timelines.get(userId)?.lastStartMs !== periodStart.getTime(),
    )
    if (stale.length > 0) throw new StaleRating(stale.map(({ userId }) => userId))
  }
}

const appsOf = (users: readonly User[]): AppId[] => [...new Set(users.map(({ appId }) => appId))]

function lastSigned({ batch: { tickets }, places }: BatchTickets): Date {
  let last = 0
  for (const place of places)
    last = Math.max(last, signedAtMs(tickets, place) - readClockOffset(tickets, place))
  return new Date(last)
}

/** Returns the users of tickets that are grouped by user. */
function usersOf({ batch: { tickets, sessions }, places }: BatchTickets): User[] {
  const users = new Set<Subject>()
  for (const place of places) {
    const subject = sessions[readSession(tickets, place)]?.payer.subject
    if (subject) users.add(subject)
  }
  return [...users]
}
