import type * as pb from '../../../proto/gen/ts-proto/tollgate/billing/v1/invoices.ts'
import {
  formatDecimal18,
  formatDollars,
  microsToAttos,
  microsThatAddUp,
  type UsdAttos,
  usdAttos,
  usdMicros,
} from '../../lib/money.ts'
import { type MemberCaller, type SelfCaller, toActor } from '../../rpc/callers.ts'
import {
  appOperator,
  appOperatorWrite,
  gatewayCaller,
  hiddenMember,
  member,
  orOperator,
  orSelf,
} from '../../rpc/guards.ts'
import { type Handlers, rpc } from '../../rpc/serve.ts'
import { parseIdempotencyKey } from '../../shared/idempotency.ts'
import type { AppId } from '../../shared/ids.ts'
import { parseReadable } from '../../shared/text.ts'
import { formatCents, parseRefund } from '../payments/amounts.ts'
import { formatNumber } from './invoice.ts'
import type { Notes } from './notes.ts'
import type { NoteOfInvoice } from './read-store.ts'
import type { InvoiceReads, Reader, ShownDocument } from './reads.ts'

export interface InvoicesRpcDeps {
  readonly reads: InvoiceReads
  readonly notes: Notes
}

const reading = orOperator(hiddenMember('read'), appOperator())
/** A person also lists its own, and reads one by its signed link. */
const listing = orOperator(orSelf(hiddenMember('read')), appOperator())
const editing = orOperator(member('edit'), appOperatorWrite())

/** Invoices and credit notes. */
export function createInvoicesRpc({ reads, notes }: InvoicesRpcDeps) {
  const invoiceService: Handlers<pb.InvoiceServiceServer> = {
    listInvoices: rpc(listing, async (request: pb.ListInvoicesRequest, caller) => {
      const { items, ...page } = await reads.list(toReader(caller), {
        page: request.page,
        pageSize: request.pageSize,
        status: request.status,
        invoiceType: request.invoiceType,
        ...(caller.kind === 'self'
          ? { externalUserId: caller.externalUserId, payer: 'users' }
          : { externalUserId: request.externalUserId, payer: request.payer }),
      })
      return { items: items.map(toInvoice), ...page }
    }),

    getInvoice: rpc(reading, async ({ invoiceId }: pb.GetInvoiceRequest, caller) => ({
      invoice: toInvoice(await reads.read(toReader(caller), invoiceId)),
    })),

    getHostedInvoice: rpc(gatewayCaller(), async ({ token }: pb.GetHostedInvoiceRequest) => ({
      invoice: toInvoice(await reads.readHosted(token)),
    })),

    voidInvoice: rpc(editing, async (request: pb.VoidInvoiceRequest, caller, context) => {
      const { invoiceId } = request
      await notes.voidInvoice({
        appId: caller.appId,
        invoiceId,
        note: parseReason(request.reason),
        actor: toActor(caller, context),
      })
      return { invoice: toInvoice(await reads.read(toReader(caller), invoiceId)) }
    }),

    createCreditNote: rpc(editing, async (request: pb.CreateCreditNoteRequest, caller, context) => {
      const id = await notes.credit({
        appId: caller.appId,
        invoiceId: request.invoiceId,
        note: parseReason(request.reason),
        cents: parseRefund(request.amountUsd),
        actor: toActor(caller, context),
        idempotencyKey: parseIdempotencyKey(request.idempotencyKey),
      })
      return { creditNote: toInvoice(await reads.read(toReader(caller), id)) }
    }),
  }
  return { invoiceService }
}

type ReadingCaller =
  MemberCaller | SelfCaller | { readonly kind: 'operator'; readonly appId: AppId }

const toReader = (caller: ReadingCaller): Reader => ({
  appId: caller.appId,
  account: caller.kind === 'member' && !caller.isPlatformAdmin ? caller.accountId : null,
})

const toDollars = (micros: bigint): string => formatDollars(microsToAttos(usdMicros(micros)))

const parseReason = (text: string): string => parseReadable(text, { field: 'reason', max: 500 })

function toInvoice(document: ShownDocument): pb.Invoice {
  const { lines, carriedIn, carried } = document
  // Rounded together, so that lines and carried amounts add up to the total.
  const left: UsdAttos = usdAttos(-carried)
  const micros = microsThatAddUp([...lines.map(({ amount }) => amount), carriedIn, left])
  const [carriedInMicros = usdMicros(0n), carriedMicros = usdMicros(0n)] = micros.slice(-2)
  return {
    id: document.id,
    number: formatNumber(document.kind, document.number),
    invoiceType: document.kind === 'invoice' ? 'standard' : 'credit_note',
    status: document.status,
    currency: 'USD',
    totalAmount: formatCents(document.total),
    customerId: document.userId,
    customerKey: document.externalUserId,
    issuerName: document.issuerName,
    issuerClientId: document.issuerClientId,
    issuedAt: document.issuedAt.toISOString(),
    periodStart: document.periodStart.toISOString(),
    periodEnd: lastMillisecond(document.periodEnd),
    reason: document.reason,
    carriedInAmount: toDollars(carriedInMicros),
    carriedAmount: toDollars(carriedMicros),
    paidAt: document.paidAt?.toISOString(),
    creditedAmount: formatCents(document.credited),
    invoiceId: document.invoiceId ?? undefined,
    note: document.note ?? undefined,
    plane: document.plane,
    hostedInvoiceUrl: document.url ?? undefined,
    creditNotes: document.notes.map(toNote),
    invoiceNumber:
      document.invoiceNumber === null ? undefined : formatNumber('invoice', document.invoiceNumber),
    lines: lines.map((line, index) => ({
      id: `${document.id}-${line.position}`,
      name: line.description,
      kind: line.kind,
      totalAmount: toDollars(micros[index] ?? 0n),
      totalUsdExact: formatDecimal18(line.amount),
      periodStart: line.periodStart.toISOString(),
      periodEnd: lastMillisecond(line.periodEnd),
      planId: line.planId ?? undefined,
      pipeline: line.pipeline ?? undefined,
      modelId: line.modelId ?? undefined,
      chargedClientId: line.chargedClientId ?? undefined,
      tickets: line.tickets?.toString(),
      units: line.units?.toString(),
    })),
  }
}

const toNote = ({ id, number, issuedAt, total, reason, note }: NoteOfInvoice): pb.CreditNote => ({
  id,
  number: formatNumber('credit_note', number),
  issuedAt: issuedAt.toISOString(),
  totalAmount: formatCents(total),
  reason,
  note: note ?? undefined,
})

const lastMillisecond = (end: Date): string => new Date(end.getTime() - 1).toISOString()
