import { DomainError } from '../../../proto/errors.ts'
import type { Credit } from '../../balances/accounts/credits.ts'
import type { CreditDebit } from '../../balances/accounts/chain.ts'
import type { Ledger } from '../../balances/ledger/ledger.ts'
import type { TicketCharge } from '../../metering/ingest/charges.ts'
import type { AppId } from '../../shared/ids.ts'
import { usdAttos } from '../../lib/money.ts'
import type { Db, Pool } from '../../lib/sql.ts'
import type { PlansApi } from '../../plans/module.ts'
import type { PriceRule } from '../../plans/terms.ts'
import { inRequest } from '../store.ts'
import * as store from './store.ts'
import type { BookedCharge, BookedSale, BookedTicket } from './store.ts'

export interface ExplainDeps {
  readonly pool: Pool
  readonly ledger: Pick<Ledger, 'shareCharge' | 'readCredits'>
  readonly plans: Pick<PlansApi, 'readTerms' | 'toRetailRate'>
  /** Lists the cuts of an app, the newest first. */
  readonly listCuts: (
    db: Db,
    app: AppId,
  ) => Promise<readonly { readonly since: Date; readonly basisPoints: bigint | null }[]>
}

/** The decisive rule of a plan version, and its ratio to the network's price, scaled by 10^18. */
export interface ExplainedRule {
  readonly name: PriceRule
  readonly bundleId: string | null
  readonly ratio: bigint
}

export interface ExplainedPlan {
  readonly id: string
  readonly name: string
  readonly version: number
  readonly termsId: bigint
}

/** A ticket's debits from credits, and the amount that no credit covered. */
export interface Share {
  readonly draws: readonly CreditDebit[]
  readonly overage: bigint
}

export interface ExplainedCharge extends BookedCharge {
  /** Credits that the charge drew from, in no order. */
  readonly credits: readonly Credit[]
  /** The ticket's own part. Null if some tickets of the charge cannot be found near this one. */
  readonly share: Share | null
}

export interface ExplainedSale extends BookedSale {
  /** Both null for a ticket without a version. */
  readonly plan: ExplainedPlan | null
  readonly rule: ExplainedRule | null
  /** The platform's cut at signing, in percent scaled by 10^18; null without one. */
  readonly cut: { readonly percent: bigint; readonly since: Date } | null
  /** Null if the ledger has no such entry. */
  readonly charge: ExplainedCharge | null
  readonly period: store.ChargedPeriod | null
}

export interface Explanation extends Omit<BookedTicket, 'sale'> {
  /** Null while it waits for a rate. */
  readonly sale: ExplainedSale | null
}

// A charge covers a batch: most of its tickets were signed within minutes of each other.
const reaches = [15 * 60_000, 86_400_000]
const maxTickets = 20_000
const percentScale = 10n ** 16n

/**
 * Explains single tickets from booked data (docs/receipts.md). Reads only data that never changes.
 */
export function createExplain({ pool, ledger, plans, listCuts }: ExplainDeps) {
  /** Explains the ticket of an event id, in one app or any. Throws NOT_FOUND without one. */
  const explain = (eventId: string, onlyApp: AppId | null): Promise<Explanation> =>
    inRequest(pool, async (db) => {
      const ticket = await store.findTicket(db, eventId, onlyApp)
      if (!ticket)
        throw new DomainError(
          'NOT_FOUND',
          'no ticket has this event id; tickets of archived months are in their archive files',
        )
      return { ...ticket, sale: ticket.sale && (await explainSale(db, ticket, ticket.sale)) }
    })

  async function explainSale(
    db: Db,
    ticket: BookedTicket,
    sale: BookedSale,
  ): Promise<ExplainedSale> {
    const charge = await store.findCharge(db, ticket, sale.chargeId)
    return {
      ...sale,
      ...(await explainTerms(db, ticket, sale)),
      cut: sale.termsId === null ? null : await cutOf(db, ticket, charge),
      charge: charge && (await explainCharge(db, ticket, { ...sale, charge })),
      period:
        charge &&
        (await store.findPeriod(db, ticket, { seq: charge.seq, signedAt: ticket.signedAt })),
    }
  }

  async function explainTerms(db: Db, ticket: BookedTicket, { termsId, planName }: BookedSale) {
    const [terms] = termsId === null ? [] : await plans.readTerms(db, [termsId])
    if (!terms) return { plan: null, rule: null }
    const { rule: name, bundleId, rate: ratio } = plans.toRetailRate(terms, ticket)
    const { planId: id, version } = terms
    return {
      plan: { id, name: planName ?? '', version, termsId: terms.termsId },
      rule: { name, bundleId, ratio },
    }
  }

  // Equals core/metering/rating/rating.ts: cuts use real time, and a signer's clock that is ahead
  // does not select a later cut.
  async function cutOf(
    db: Db,
    { appId, signedAt, aheadMs }: BookedTicket,
    charge: BookedCharge | null,
  ) {
    const signedMs = new Date(signedAt).getTime() - aheadMs
    const cutMs = Math.min(signedMs, charge?.ratesKnownAt?.getTime() ?? signedMs)
    const cut = (await listCuts(db, appId)).find(({ since }) => since.getTime() <= cutMs)
    if (!cut || cut.basisPoints === null) return null
    return { percent: cut.basisPoints * percentScale, since: cut.since }
  }

  async function explainCharge(
    db: Db,
    ticket: BookedTicket,
    { retail, charge }: { retail: bigint; charge: BookedCharge },
  ): Promise<ExplainedCharge> {
    const { appId, userId } = ticket
    const keys = charge.draws.map(({ creditId }) => ({ appId, userId, creditId }))
    const credits = (await ledger.readCredits(db, keys)).get(userId) ?? []
    const share = simpleShare(charge, retail) ?? (await sharedBy(db, ticket, { charge, credits }))
    return { ...charge, credits, share }
  }

  /** Computes the share by the burn order, from all tickets of the charge. */
  async function sharedBy(
    db: Db,
    ticket: BookedTicket,
    { charge, credits }: { charge: BookedCharge; credits: Credit[] },
  ): Promise<Share | null> {
    const tickets = await ticketsOf(db, ticket, charge)
    if (!tickets) return null
    const { draws, overage } = charge
    const shares = ledger.shareCharge({ owner: ticket, draws, overage, credits, tickets })
    return shares?.find(({ eventId }) => eventId === ticket.eventId) ?? null
  }

  /** Returns all tickets of a charge; null if there are too many, or if they are too far apart. */
  async function ticketsOf(
    db: Db,
    ticket: BookedTicket,
    { id, ticketCount }: BookedCharge,
  ): Promise<TicketCharge[] | null> {
    if (ticketCount > maxTickets) return null
    const signed = new Date(ticket.signedAt).getTime()
    for (const reach of reaches) {
      const tickets = await store.ticketsOfCharge(db, ticket, {
        chargeId: id,
        from: new Date(signed - reach),
        to: new Date(signed + reach),
        limit: maxTickets,
      })
      if (tickets.length === ticketCount) return tickets
    }
    return null
  }

  return { explain }
}

export type Explain = ReturnType<typeof createExplain>

/**
 * Computes the share if the charge alone determines it: it has one ticket, only overage, or one
 * credit.
 */
function simpleShare({ ticketCount, draws, overage }: BookedCharge, retail: bigint): Share | null {
  if (ticketCount === 1) return { draws, overage }
  if (draws.length === 0) return { draws, overage: retail }
  const [only] = draws
  if (draws.length > 1 || overage > 0n || !only) return null
  const amount = usdAttos(-retail)
  return { draws: retail === 0n ? [] : [{ creditId: only.creditId, amount }], overage: 0n }
}
