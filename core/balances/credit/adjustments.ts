import { DomainError } from '../../../proto/errors.ts'
import { findApp } from '../../shared/clients.ts'
import { canonicalEventId } from '../../shared/ids.ts'
import { parseReadable } from '../../shared/text.ts'
import { audit } from '../../shared/audit.ts'
import type { Users } from '../../identity/users/users.ts'
import { uuidV7 } from '../../lib/crypto.ts'
import {
  type UsdAttos,
  type UsdMicros,
  microsDown,
  microsToAttos,
  microsUp,
  usdAttos,
  usdMicros,
} from '../../lib/money.ts'
import type { Db } from '../../lib/sql.ts'
import { type Account, toAppTime } from '../accounts/account.ts'
import type { Return } from '../accounts/adjusting.ts'
import { paidFor } from '../accounts/burning.ts'
import { spendableAt } from '../accounts/credits.ts'
import type { Ledger } from '../ledger/ledger.ts'
import type { Shared } from '../../shared/shared.ts'
import * as store from './correction-store.ts'

export interface AdjustmentsDeps extends Pick<
  Shared,
  'pool' | 'idempotency' | 'invalidations' | 'log' | 'now'
> {
  readonly ledger: Ledger
  readonly users: Users
}

export interface AdjustmentRequest {
  readonly clientId: string
  readonly externalUserId: string
  /** Non-zero integer: positive gives, negative takes. */
  readonly amountUsdMicros: string
  readonly reason: string
  readonly author: string
  /** The ticket to correct. */
  readonly eventId: string | undefined
  /**
   * How to treat the part of a debit that no credit covers: "refuse" the whole debit (default), or
   * record that part as "overage".
   */
  readonly uncovered: string | undefined
  readonly idempotencyKey: string | undefined
  readonly correlationId: string
}

interface Parsed {
  readonly amount: UsdMicros
  readonly reason: string
  readonly author: string
  readonly eventId: string | null
  readonly mayBeOverage: boolean
}

interface Correction {
  readonly user: Parameters<Ledger['adjust']>[1]['user']
  readonly parsed: Parsed
  readonly ticket: store.CorrectedTicket | null
  readonly correlationId: string
}

/** A billion dollars, as for a credit. */
const amountMax = 10n ** 15n

/**
 * Corrects balances for an operator by compensating entries with a reason and an author. Existing
 * entries are never edited.
 */
export function createAdjustments({
  pool,
  ledger,
  users,
  idempotency,
  invalidations,
  log,
  now,
}: AdjustmentsDeps) {
  /**
   * Throws AMOUNT_INVALID or REQUEST_INVALID for a malformed request; NOT_FOUND for an unknown app,
   * user or ticket; CONFLICT for a debit beyond the balance that may not become overage, for a
   * refund beyond what the named ticket burned, and for a refund of a ticket without a price.
   */
  async function adjust(request: AdjustmentRequest) {
    const parsed = parse(request)
    const app = await findApp(pool, request.clientId)
    if (app === null) throw new DomainError('NOT_FOUND', 'no app has this client id')
    const { id: userId, externalUserId } = await users.get(app, request.externalUserId)
    const user = { appId: app, userId }
    const ticket = parsed.eventId === null ? null : await ticketOf(user, parsed.eventId)
    const result = await idempotency.once(
      {
        scope: `operator:adjustments:${app}`,
        key: request.idempotencyKey,
        body: { userId, ...parsed, amount: parsed.amount.toString() },
      },
      (db) => record(db, { user, parsed, ticket, correlationId: request.correlationId }),
    )
    log.info(
      {
        ...user,
        adjustmentId: result.id,
        amountUsdMicros: result.amountUsdMicros,
        author: parsed.author,
      },
      'balance adjusted',
    )
    await invalidations.publish({ kind: 'access', id: userId })
    return { ...result, externalUserId }
  }

  async function ticketOf(
    user: Parameters<typeof store.findTicket>[1],
    eventId: string,
  ): Promise<store.CorrectedTicket> {
    const ticket = await store.findTicket(pool, user, eventId)
    if (!ticket)
      throw new DomainError(
        'NOT_FOUND',
        'this user has no ticket with this event id (an archived ticket can be restored)',
      )
    return ticket
  }

  async function record(db: Db, { user, parsed, ticket, correlationId }: Correction) {
    const at = now()
    const { amount, reason, author, eventId } = parsed
    const adjustment = {
      id: uuidV7(at.getTime()),
      amount: microsToAttos(amount),
      reason,
      author,
      eventId,
      at,
    }
    const refund =
      eventId !== null && ticket && amount > 0n
        ? () => refundOf(db, { user, eventId, ticket, amount })
        : undefined
    const corrected = await ledger.adjust(db, { user, adjustment, feature: ticket, refund })
    const { account, overage } = corrected
    if (overage > 0n && !parsed.mayBeOverage) {
      throw new DomainError(
        'CONFLICT',
        `only ${-amount - microsUp(overage)} of these USD micros are available${heldNote(account)}; the rest could be booked as overage`,
      )
    }
    await audit(db, auditEntry({ user, parsed, correlationId, id: adjustment.id, at }))
    return {
      id: adjustment.id,
      amountUsdMicros: amount.toString(),
      overageUsdMicros: microsUp(overage).toString(),
      balanceUsdMicros: microsDown(spendableAt(account.credits, toAppTime(account, at))).toString(),
      createdAt: toAppTime(account, at).toISOString(),
    }
  }

  interface Refund {
    readonly user: Correction['user']
    readonly eventId: string
    readonly ticket: store.CorrectedTicket
    readonly amount: UsdMicros
  }

  /**
   * Returns what the ticket burned and has not been given back, up to `amount`, in burn order. The
   * account is locked, so a second refund takes the first into account. Throws CONFLICT if `amount`
   * exceeds what is left, or if the ticket has no price yet.
   */
  async function refundOf(
    db: Db,
    { user, eventId, ticket, amount }: Refund,
  ): Promise<readonly Return[]> {
    const { cost, chargeId } = ticket
    if (cost === null || chargeId === null)
      throw new DomainError(
        'CONFLICT',
        'the ticket has no price yet, so nothing was charged for it',
      )
    const charge = await store.findCharge(db, user, chargeId)
    if (!charge) throw new Error(`the charge of ticket ${eventId} is not in the ledger`)
    const paid = partsPaid(charge, eventId)
    const left = withoutFirst(paid, await store.givenBackFor(db, user, eventId))
    const sum = sumOf(left)
    // Micros are coarser than costs, so a fraction of a micro is requested as a whole one.
    if (amount > microsUp(sum)) throw tooMuch(cost, sumOf(paid), sum)
    return firstOf(left, microsToAttos(amount))
  }

  return { adjust }
}

/** Returns what the credits paid for a ticket. */
function partsPaid({ credits, tickets }: store.DrawnCharge, eventId: string): Return[] {
  const featureOf = new Map(credits.map(({ id, featureKey }) => [id, featureKey]))
  return paidFor(eventId, { credits, tickets }).map(({ creditId, amount }) => ({
    creditId,
    amount,
    featureKey: featureOf.get(creditId) ?? null,
  }))
}

const sumOf = (parts: readonly Return[]): UsdAttos =>
  usdAttos(parts.reduce((sum, { amount }) => sum + amount, 0n))

/** Returns the parts without their first `amount`. */
function withoutFirst(parts: readonly Return[], amount: bigint): Return[] {
  let open = amount
  return parts.flatMap((part) => {
    const skipped = part.amount < open ? part.amount : open
    open -= skipped
    return skipped === part.amount ? [] : [{ ...part, amount: usdAttos(part.amount - skipped) }]
  })
}

/** Returns the first `amount` of the parts. */
function firstOf(parts: readonly Return[], amount: bigint): Return[] {
  let open = amount
  return parts.flatMap((part) => {
    const share = part.amount < open ? part.amount : open
    open -= share
    return share === 0n ? [] : [{ ...part, amount: usdAttos(share) }]
  })
}

function tooMuch(cost: UsdAttos, paid: UsdAttos, left: UsdAttos): DomainError {
  const overage = usdAttos(cost - paid)
  const unpaid = overage === 0n ? '' : `, of which ${microsUp(overage)} are unpaid overage`
  return new DomainError(
    'CONFLICT',
    `the ticket cost ${microsUp(cost)} USD micros${unpaid}; no more than ${microsUp(left)} can be given back for it`,
  )
}

export type Adjustments = ReturnType<typeof createAdjustments>

function parse({ amountUsdMicros, reason, author, eventId, uncovered }: AdjustmentRequest): Parsed {
  if (!/^-?[1-9]\d{0,15}$/.test(amountUsdMicros) || abs(BigInt(amountUsdMicros)) > amountMax) {
    throw new DomainError(
      'AMOUNT_INVALID',
      `amountUsdMicros must be an integer from -${amountMax} to ${amountMax}, and not 0`,
    )
  }
  const policy = uncovered ?? 'refuse'
  if (policy !== 'refuse' && policy !== 'overage')
    throw new DomainError('REQUEST_INVALID', 'uncovered must be "refuse" or "overage"')
  return {
    amount: usdMicros(BigInt(amountUsdMicros)),
    reason: parseText('reason', reason, 500),
    author: parseText('author', author, 100),
    eventId: eventId === undefined ? null : canonicalEventId(parseText('eventId', eventId, 200)),
    mayBeOverage: policy === 'overage',
  }
}

function auditEntry({
  user,
  parsed,
  correlationId,
  id,
  at,
}: Omit<Correction, 'ticket'> & { id: string; at: Date }) {
  return {
    appId: user.appId,
    actor: `operator:${parsed.author}`,
    action: 'balance_adjusted',
    status: 'success',
    at,
    correlationId,
    details: {
      adjustmentId: id,
      userId: user.userId,
      amountUsdMicros: parsed.amount.toString(),
      reason: parsed.reason,
      eventId: parsed.eventId,
    },
  } as const
}

/** Explains why less can be taken than the balance shows. */
function heldNote({ lent, pending }: Account): string {
  const held = microsUp(usdAttos(lent + pending))
  return held === 0n ? '' : ` (${held} are held for calls in progress)`
}

const abs = (value: bigint): bigint => (value < 0n ? -value : value)

const parseText = (field: string, text: string, max: number): string =>
  parseReadable(text, { field, max })
