import { DomainError } from '../../proto/errors.ts'
import { audit } from '../platform/audit.ts'
import type { Idempotency } from '../platform/idempotency.ts'
import type { Users } from '../identity/users/users.ts'
import type { Invalidations } from '../platform/invalidations.ts'
import { uuidV7 } from '../lib/crypto.ts'
import type { Log } from '../lib/log.ts'
import {
  type UsdAttos,
  type UsdMicros,
  microsDown,
  microsToAttos,
  microsUp,
  usdMicros,
} from '../lib/money.ts'
import type { Db, Pool } from '../lib/sql.ts'
import type { Now } from '../lib/time.ts'
import { remainingAt } from './account.ts'
import * as store from './adjustment-store.ts'
import type { Ledger } from './ledger.ts'

export interface AdjustmentsDeps {
  readonly pool: Pool
  readonly ledger: Ledger
  readonly users: Users
  readonly idempotency: Idempotency
  readonly invalidations: Invalidations
  readonly log: Log
  readonly now: Now
}

export interface AdjustmentRequest {
  readonly clientId: string
  readonly externalUserId: string
  /** A whole number other than zero: more gives, less takes. */
  readonly amountUsdMicros: string
  readonly reason: string
  readonly author: string
  /** The ticket that it corrects. */
  readonly eventId: string | undefined
  /** What happens to the part of a debit that no allowance covers: "refuse" it all, or book it as "overage". */
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

/** A billion dollars, like a grant's. */
const amountMax = 10n ** 15n

/** Corrections of balances by an operator: a compensating entry with a reason and an author, never an edit. */
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
   * AMOUNT_INVALID or REQUEST_INVALID for what is malformed; NOT_FOUND for an unknown app, user or ticket; CONFLICT for a
   * debit of more than there is that may not become overage, and for giving back more than the named ticket cost.
   */
  async function adjust(request: AdjustmentRequest) {
    const parsed = parse(request)
    const app = await store.findApp(pool, request.clientId)
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
      (db) => book(db, { user, parsed, ticket, correlationId: request.correlationId }),
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
        'this user has no ticket with this event id (one that was archived can be restored)',
      )
    return ticket
  }

  interface Booking {
    readonly user: Parameters<Ledger['adjust']>[1]['user']
    readonly parsed: Parsed
    readonly ticket: store.CorrectedTicket | null
    readonly correlationId: string
  }

  async function book(db: Db, { user, parsed, ticket, correlationId }: Booking) {
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
    const { account, overage } = await ledger.adjust(db, { user, adjustment, feature: ticket })
    if (overage > 0n && !parsed.mayBeOverage) {
      throw new DomainError(
        'CONFLICT',
        `only ${-amount - microsUp(overage)} of these USD micros are there to be taken; the rest could be booked as overage`,
      )
    }
    if (eventId !== null && ticket && amount > 0n)
      await refuseTooMuch(db, { user, eventId, cost: ticket.cost })
    await audit(db, {
      appId: user.appId,
      actor: `operator:${author}`,
      action: 'balance_adjusted',
      status: 'success',
      at,
      correlationId,
      details: {
        adjustmentId: adjustment.id,
        userId: user.userId,
        amountUsdMicros: amount.toString(),
        reason,
        eventId,
      },
    })
    return {
      id: adjustment.id,
      amountUsdMicros: amount.toString(),
      overageUsdMicros: microsUp(overage).toString(),
      balanceUsdMicros: microsDown(remainingAt(account.grants, at)).toString(),
      createdAt: at.toISOString(),
    }
  }

  // The account is locked: of two corrections of one ticket the second sees the first.
  async function refuseTooMuch(
    db: Db,
    { user, eventId, cost }: { user: Booking['user']; eventId: string; cost: UsdAttos | null },
  ): Promise<void> {
    if (cost === null)
      throw new DomainError(
        'CONFLICT',
        'the ticket waits for its price; nothing was charged for it yet',
      )
    const given = await store.adjustedFor(db, user, eventId)
    // Micros are coarser than costs: a started micro may be given back whole.
    if (given > microsToAttos(microsUp(cost))) {
      throw new DomainError(
        'CONFLICT',
        `the ticket cost ${microsUp(cost)} USD micros; no more than that can be given back for it`,
      )
    }
  }

  return { adjust }
}

export type Adjustments = ReturnType<typeof createAdjustments>

function parse({ amountUsdMicros, reason, author, eventId, uncovered }: AdjustmentRequest): Parsed {
  if (!/^-?[1-9]\d{0,15}$/.test(amountUsdMicros) || abs(BigInt(amountUsdMicros)) > amountMax) {
    throw new DomainError(
      'AMOUNT_INVALID',
      `amountUsdMicros must be an integer other than zero, at most ${amountMax} either way`,
    )
  }
  const policy = uncovered ?? 'refuse'
  if (policy !== 'refuse' && policy !== 'overage')
    throw new DomainError('REQUEST_INVALID', 'uncovered must be "refuse" or "overage"')
  return {
    amount: usdMicros(BigInt(amountUsdMicros)),
    reason: parseText('reason', reason, 500),
    author: parseText('author', author, 100),
    eventId: eventId === undefined ? null : parseText('eventId', eventId, 200),
    mayBeOverage: policy === 'overage',
  }
}

const abs = (value: bigint): bigint => (value < 0n ? -value : value)

function parseText(name: string, text: string, max: number): string {
  const trimmed = text.trim()
  if (trimmed === '' || trimmed.length > max || /\p{Cc}/u.test(trimmed)) {
    throw new DomainError(
      'REQUEST_INVALID',
      `${name} must be 1 to ${max} characters without control characters`,
    )
  }
  return trimmed
}
