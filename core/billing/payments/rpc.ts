import type * as pb from '../../../proto/gen/ts-proto/tollgate/billing/v1/payments.ts'
import { DomainError } from '../../../proto/errors.ts'
import { microsDown } from '../../lib/money.ts'
import type { Pool } from '../../lib/sql.ts'
import { parseInstant, parseUtcDay } from '../../lib/time.ts'
import type { Author, Change } from '../../plans/subscriptions/change.ts'
import type { CheckoutRequest } from '../../plans/subscriptions/changes.ts'
import { callerName, toActor } from '../../rpc/callers.ts'
import {
  appOperator,
  appOperatorWrite,
  gatewayCaller,
  member,
  m2mOrMember,
  orOperator,
  orSelf,
} from '../../rpc/guards.ts'
import { type Handlers, rpc } from '../../rpc/serve.ts'
import { page, parseCursor, parseLimit } from '../../shared/cursor.ts'
import { parseIdempotencyKey } from '../../shared/idempotency.ts'
import { type AppId, isUuid } from '../../shared/ids.ts'
import { usdCents } from '../processor/port.ts'
import { centsToAttos, formatCents, parseRefund, parseTopUp } from './amounts.ts'
import { type StoredCheckout, findCheckout } from './checkout-store.ts'
import { type Checkouts, notConfigured } from './checkouts.ts'
import type { ProcessorEvents } from './events.ts'
import type { Payers } from './payers.ts'
import {
  type ListedPayment,
  type PaymentState,
  findPayment,
  listPayments,
  paymentStates,
} from './payment-store.ts'
import type { Returns } from './returns.ts'

export interface PaymentsRpcDeps {
  readonly pool: Pool
  readonly payers: Payers
  /** Null without a payment processor. */
  readonly collecting: {
    readonly checkouts: Checkouts
    readonly returns: Returns
    readonly events: ProcessorEvents
  } | null
  /** Opens the pay page for a plan of the user. */
  readonly openPlanCheckout: (app: AppId, request: CheckoutRequest, by: Author) => Promise<Change>
}

/** Money that users pay through the payment processor. */
export function createPaymentsRpc({ pool, payers, collecting, openPlanCheckout }: PaymentsRpcDeps) {
  function requireProcessor() {
    if (collecting === null) throw notConfigured()
    return collecting
  }

  const payerOrEditor = orSelf(m2mOrMember(undefined, 'edit'))

  const paymentService: Handlers<pb.PaymentServiceServer> = {
    createTopUp: rpc(payerOrEditor, async (request: pb.CreateTopUpRequest, caller, context) => {
      const amount = parseTopUp(request.amountUsd)
      const { checkouts } = requireProcessor()
      const { checkoutId, checkoutUrl } = await checkouts.open({
        payer: await payers.resolve(caller, request),
        openedBy: caller.appId,
        purpose: 'top_up',
        amount,
        description: 'Prepaid usage',
        successUrl: request.successUrl,
        cancelUrl: request.cancelUrl,
        idempotencyKey: parseIdempotencyKey(request.idempotencyKey),
        actor: toActor(caller, context),
      })
      return { checkoutUrl, sessionId: checkoutId, amountUsdMicros: micros(amount) }
    }),

    createCardSetup: rpc(
      payerOrEditor,
      async (request: pb.CreateCardSetupRequest, caller, context) => {
        const { checkouts } = requireProcessor()
        const { checkoutId, checkoutUrl } = await checkouts.open({
          payer: await payers.resolve(caller, request),
          openedBy: caller.appId,
          purpose: 'card',
          amount: null,
          description: 'Card on file',
          successUrl: request.successUrl,
          cancelUrl: request.cancelUrl,
          idempotencyKey: parseIdempotencyKey(request.idempotencyKey),
          actor: toActor(caller, context),
        })
        return { checkoutUrl, sessionId: checkoutId }
      },
    ),

    createPlanCheckout: rpc(
      orOperator(member('edit'), appOperatorWrite()),
      async (request: pb.CreatePlanCheckoutRequest, caller, { correlationId }) => {
        const isOperator = caller.kind === 'operator'
        const { planId, externalUserId, successUrl, cancelUrl } = request
        const idempotencyKey = parseIdempotencyKey(request.idempotencyKey)
        const { checkoutUrl, subscriptionId } = await openPlanCheckout(
          caller.appId,
          { planId, externalUserId, successUrl, cancelUrl, idempotencyKey },
          { name: callerName(caller), correlationId, isOperator },
        )
        if (checkoutUrl === undefined) throw new Error('a checkout has no address')
        return { checkoutUrl, subscriptionId }
      },
    ),

    getCheckout: rpc(
      orOperator(m2mOrMember(), appOperator()),
      async ({ sessionId }: pb.GetCheckoutRequest, { appId }) => {
        const checkout = isUuid(sessionId)
          ? await findCheckout(pool, { appId, id: sessionId })
          : null
        if (checkout === null) throw new DomainError('NOT_FOUND', 'the app has no such checkout')
        return toCheckout(checkout)
      },
    ),

    listPayments: rpc(
      orOperator(member('read'), appOperator()),
      async (request: pb.ListPaymentsRequest, { appId }) => {
        const limit = parseLimit(request.limit)
        const rows = await listPayments(pool, {
          appId,
          externalUserId: request.externalUserId ?? null,
          state: parseState(request.state),
          since: parseBound('since', request.since),
          until: parseBound('until', request.until),
          after: parseCursor(request.cursor),
          limit: limit + 1,
        })
        const { items, nextCursor } = page(rows, limit)
        return { payments: items.map(toPayment), nextCursor }
      },
    ),

    refundPayment: rpc(
      appOperatorWrite(),
      async (request: pb.RefundPaymentRequest, caller, context) => {
        const { returns } = requireProcessor()
        const requestId = parseIdempotencyKey(request.idempotencyKey)
        if (requestId === undefined || requestId === '')
          throw new DomainError('REQUEST_INVALID', 'send an idempotency key with a refund')
        const payment = isUuid(request.paymentId)
          ? await findPayment(pool, { appId: caller.appId, id: request.paymentId })
          : null
        if (payment === null) throw noPayment(request.paymentId)
        const cents = request.amountUsd === undefined ? null : parseRefund(request.amountUsd)
        const actor = toActor(caller, context)
        const { amount } = await returns.refund({ payment, cents, requestId, actor })
        return { paymentId: payment.id, refundedUsd: formatCents(amount) }
      },
    ),

    receiveProcessorEvent: rpc(
      gatewayCaller(),
      async ({ body, signature }: pb.ReceiveProcessorEventRequest) => {
        await requireProcessor().events.receive(body, signature)
        return {}
      },
    ),
  }
  return { paymentService }
}

function parseState(text: string | undefined): PaymentState | null {
  if (text === undefined) return null
  const state = paymentStates.find((one) => one === text)
  if (state !== undefined) return state
  throw new DomainError('REQUEST_INVALID', `state must be one of: ${paymentStates.join(', ')}`)
}

function parseBound(name: string, text: string | undefined): Date | null {
  if (text === undefined) return null
  const instant = parseUtcDay(text) ?? parseInstant(text)
  if (instant !== null) return instant
  throw new DomainError('REQUEST_INVALID', `${name} must be an ISO 8601 day or instant with a zone`)
}

const noPayment = (id: string): DomainError =>
  new DomainError(
    'NOT_FOUND',
    isUuid(id)
      ? `the app has no payment ${id}`
      : 'the app has no such payment: the id of a payment is a UUID, as `tollgate wallet payments` lists it',
  )

const micros = (cents: bigint): string => String(microsDown(centsToAttos(usdCents(cents))))

const toCheckout = ({ id, purpose, state, amount, problem, createdAt }: StoredCheckout) => ({
  sessionId: id,
  purpose,
  status: state,
  amountUsdMicros: amount === null ? undefined : micros(amount),
  problem: problem ?? undefined,
  createdAt: createdAt.toISOString(),
})

const toPayment = (payment: ListedPayment): pb.Payment => ({
  id: payment.id,
  externalUserId: payment.externalUserId,
  purpose: payment.purpose,
  amountUsd: formatCents(payment.amount),
  refundedUsd: formatCents(payment.refunded),
  disputedUsd: formatCents(payment.disputed),
  plane: payment.at.plane,
  processorId: payment.processorId,
  createdAt: payment.createdAt.toISOString(),
  feeUsd: formatCents(payment.fee),
  state: payment.state,
  invoiceId: payment.invoiceId ?? undefined,
})
