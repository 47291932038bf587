import type { BookDifference } from '../../proto/gen/ts-proto/tollgate/books/v1/books.ts'
import {
  computePrice,
  microsToAttos,
  microsUp,
  usdAttos,
  usdMicros,
  wei,
} from '../../core/lib/money.ts'
import type { ReconcileProcessorResponse } from '../../proto/gen/ts-proto/tollgate/billing/v1/reconciliation.ts'
import { withCore } from '../cli/command.ts'
import type { CoreReader } from '../cli/client.ts'
import type { SignerDouble } from '../signer-double/signer-double.ts'
import type { ActDeps } from './allowance.ts'
import { type Customer, user } from './customer.ts'
import type { Rate } from './service.ts'
import { type Shop, offer, timesNetwork } from './shop.ts'

interface ProofDeps extends ActDeps {
  readonly shop: Shop
  readonly customer: Customer
  readonly signer: SignerDouble
}

/**
 * Compares invoices, payments, the processor and the signer with one another, and verifies the
 * books of all apps. Resolves to whether everything agrees.
 */
export async function proveBooks(deps: ProofDeps): Promise<boolean> {
  const { shop, customer, signer, screen, target, rate } = deps
  const { clientId } = shop
  const { signed } = signer.stats()
  const usage = await customer.untilBooked()
  const invoices = await customer.invoices()
  const paid = invoices.filter(({ status }) => status === 'paid')
  const notes = invoices.filter(({ invoiceType }) => invoiceType === 'credit_note')
  const { payments, accounts, damages } = await withCore({ target }, async (core) => ({
    payments: await readPayments(core, clientId),
    accounts: await reconcile(core),
    damages: await verify(core),
  }))
  const account = accounts.find((each) => each.clientId === clientId)
  const open = accounts.reduce((sum, { differences }) => sum + differences.length, 0)
  const failed = accounts.filter(({ failure }) => failure !== undefined).length
  const charged = payments.reduce((sum, { amountUsd }) => sum + cents(amountUsd), 0n)
  const returned = payments.reduce((sum, { refundedUsd }) => sum + cents(refundedUsd), 0n)
  const { funding } = await customer.readState()
  // Invoices contain two prices; what they do not contain is unpaid.
  const prepaid = (charged - 2n * cents(offer.priceAmount)) * 10_000n
  const owed = BigInt(funding.overage.unbilledDebt?.usdMicros ?? 0)
  const rows = [
    ['tickets signed', String(usage.totals.requestCount), String(signed.tickets)],
    ['fees, wei', usage.totals.totalFeeWei, signed.fee.toString()],
    ['payments, cents', String(charged), sumOf(account, 'payment')],
    ['refunds, cents', String(-returned), sumOf(account, 'refund')],
    ['paid invoices, cents', String(paid.reduce(addTotal, 0n)), String(charged)],
    ['credit notes, cents', String(notes.reduce(addTotal, 0n)), String(-returned)],
    ['credit used, micros', String(owed + prepaid), String(onCredit(signer, rate))],
    ['reconcile: differences', String(open + failed), '0'],
    ['verify: differences', String(damages.length), '0'],
  ] as const
  screen.proof(rows)
  return rows.every(([, ours, theirs]) => ours === theirs)
}

const readPayments = async (core: CoreReader, clientId: string) =>
  (
    await core.payments.listPayments({
      clientId,
      externalUserId: user,
      limit: 1_000,
      cursor: undefined,
    })
  ).payments

/** Compares with the processor up to now. */
async function reconcile(core: CoreReader): Promise<ReconcileProcessorResponse[]> {
  const accounts: ReconcileProcessorResponse[] = []
  const range = { from: undefined, to: undefined, recent: true }
  for await (const account of core.processorReconciliation.reconcileProcessor(range))
    accounts.push(account)
  return accounts
}

async function verify(core: CoreReader): Promise<BookDifference[]> {
  const differences: BookDifference[] = []
  for await (const { difference } of core.books.verifyBooks({ clientId: undefined }))
    if (difference) differences.push(difference)
  return differences
}

/** What the signed tickets cost the user beyond the included usage, in micro-dollars. */
function onCredit(signer: SignerDouble, rate: Rate): bigint {
  const network = signer
    .stats()
    .tickets.reduce((sum, { fee }) => sum + computePrice(wei(fee), rate), 0n)
  const retail = network * timesNetwork
  return microsUp(usdAttos(retail - microsToAttos(usdMicros(BigInt(offer.includedUsdMicros)))))
}

const sumOf = (account: ReconcileProcessorResponse | undefined, kind: string): string =>
  account?.sums.find((sum) => sum.kind === kind)?.amount ?? '0'

const cents = (usd: string): bigint => BigInt(usd.replace('.', ''))

const addTotal = (sum: bigint, { totalAmount }: { readonly totalAmount: string }): bigint =>
  sum + cents(totalAmount)
