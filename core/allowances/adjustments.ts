import { DomainError } from '../../proto/errors.ts'
import { foldEventId } from '../platform/ids.ts'
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
  usdAttos,
  usdMicros,
} from '../lib/money.ts'
import type { Db, Pool } from '../lib/sql.ts'
import type { Now } from '../lib/time.ts'
import { type Account, spendableAt } from './account.ts'
import type { Ledger } from './ledger.ts'
import * as store from './store.ts'

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
  /** A whole number other than zero: a positive one gives, a negative one takes. */
  readonly amountUsdMicros: string
  readonly reason: string
  readonly author: string
  /** The ticket that it corrects. */
  readonly eventId: string | undefined
  /** What becomes of the part of a debit that no credit covers: "refuse" the whole debit, or record that part as "overage". */
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

/** Corrections of balances by an operator: compensating entries with a reason and an author. Nothing is ever edited. */
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
   * AMOUNT_INVALID or REQUEST_INVALID for a malformed request; NOT_FOUND for an unknown app, user or ticket; CONFLICT for
   * a debit beyond the balance that may not become overage, and for giving back more than the named ticket cost.
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
        'this user has no ticket with this event id (one that was archived can be restored)',
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
    const { account, overage } = await ledger.adjust(db, { user, adjustment, feature: ticket })
    if (overage > 0n && !parsed.mayBeOverage) {
      throw new DomainError(
        'CONFLICT',
        `only ${-amount - microsUp(overage)} of these USD micros are there to be taken${heldNote(account)}; the rest could be booked as overage`,
      )
    }
    if (eventId !== null && ticket && amount > 0n)
      await refuseTooMuch(db, { user, eventId, cost: ticket.cost })
    await audit(db, auditEntry({ user, parsed, correlationId, id: adjustment.id, at }))
    return {
      id: adjustment.id,
      amountUsdMicros: amount.toString(),
      overageUsdMicros: microsUp(overage).toString(),
      balanceUsdMicros: microsDown(spendableAt(account.credits, at)).toString(),
      createdAt: at.toISOString(),
    }
  }

  // The account is locked, so of two corrections of one ticket the second sees the first.
  async function refuseTooMuch(
    db: Db,
    { user, eventId, cost }: { user: Correction['user']; eventId: string; cost: UsdAttos | null },
  ): Promise<void> {
    if (cost === null)
      throw new DomainError(
        'CONFLICT',
        'the ticket waits for its price; nothing was charged for it yet',
      )
    const adjusted = await store.adjustedFor(db, user, eventId)
    // Micros are coarser than costs: a part of a micro may be given back as a whole one.
    if (adjusted > microsToAttos(microsUp(cost))) {
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
    eventId: eventId === undefined ? null : foldEventId(parseText('eventId', eventId, 200)),
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

/** Says why less can be taken than the balance shows. */
function heldNote({ lent, pending }: Account): string {
  const held = microsUp(usdAttos(lent + pending))
  return held === 0n ? '' : ` (${held} are held for calls that are under way)`
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
