import { createLedger } from '../../../../core/balances/ledger/ledger.ts'
import type {
  Invoice,
  InvoiceReason,
  PriceLine,
} from '../../../../core/billing/invoices/invoice.ts'
import { markInvoiced } from '../../../../core/billing/collection/invoices.ts'
import { createIssuing } from '../../../../core/billing/invoices/issuing.ts'
import { usdAttos } from '../../../../core/lib/money.ts'
import { type Db, tx } from '../../../../core/lib/sql.ts'
import { createClocks } from '../../../../core/shared/clocks/clocks.ts'
import { type UserKey, appId, userId } from '../../../../core/shared/ids.ts'
import type { BooksWorld } from '../../books/support.ts'

/** Issues and pays invoices of a world's users, as collection does. */

export const dollar = 10n ** 18n
/** 3 USD at a rate of 3000. */
export const threeDollars = '1000000000000000'

const ledger = createLedger({ clocks: createClocks() })
export const { issue } = createIssuing({ ledger, markInvoiced })

export async function userOf(
  world: Pick<BooksWorld, 'rows'>,
  clientId: string,
  externalUserId = 'ada',
): Promise<UserKey> {
  const [row] = await world.rows(
    `select u.app_id, u.id from end_users u join clients c on c.app_id = u.app_id
     where c.client_id = $1 and u.external_user_id = $2`,
    [clientId, externalUserId],
  )
  return { appId: appId(row?.['app_id'] ?? ''), userId: userId(row?.['id'] ?? '') }
}

export interface IssueOptions {
  readonly reason?: InvoiceReason
  readonly prices?: readonly PriceLine[]
  readonly withUsage?: boolean
}

type World = Pick<BooksWorld, 'sql' | 'clock' | 'rows'>

export async function issueAll(
  world: World,
  users: readonly UserKey[],
  { reason = 'request', ...options }: IssueOptions = {},
): Promise<(Invoice | null)[]> {
  const at = world.clock.now()
  const issued = await tx(world.sql, async (db) => {
    const accounts = await ledger.lock(db, users, at)
    const invoices = await issue(
      db,
      accounts.map((account) => ({ account, reason, at, ...options })),
    )
    await ledger.save(db, accounts, at)
    return invoices
  })
  return users.map((user) => issued.get(user.userId) ?? null)
}

export const issueOne = async (
  world: World,
  user: UserKey,
  options: IssueOptions = {},
): Promise<Invoice | null> => (await issueAll(world, [user], options))[0] ?? null

/** Records the payment of an invoice, and collects its debt. */
export async function pay(world: World, invoice: Invoice, paymentId: string): Promise<void> {
  const at = world.clock.now()
  await tx(world.sql, async (db) => {
    const [account] = await ledger.lock(db, [invoice], at)
    if (!account) throw new Error('the user has no account')
    await db.query({
      text: `
      insert into payments (app_id, user_id, id, purpose, amount_cents, fee_cents, plane, account_id, processor_id, created_at,
                            invoice_id)
      values ($1, $2, $3, 'invoice', $4, 0, $5, '', $6, $7, $8)`,
      values: [
        invoice.appId,
        invoice.userId,
        paymentId,
        invoice.total,
        invoice.plane,
        `pi_${paymentId}`,
        at,
        invoice.id,
      ],
    })
    markInvoiced(account, attos(-invoice.debt))
    if (invoice.debt !== 0n)
      await ledger.collect(db, account, { amount: invoice.debt, causeId: paymentId, at })
    await ledger.save(db, [account], at)
  })
}

/** Changes a user's account under its lock. */
export async function change(
  world: World,
  user: UserKey,
  act: (db: Db, account: Awaited<ReturnType<typeof ledger.lock>>[number]) => Promise<unknown>,
): Promise<void> {
  const at = world.clock.now()
  await tx(world.sql, async (db) => {
    const [account] = await ledger.lock(db, [user], at)
    if (!account) throw new Error('the user has no account')
    await act(db, account)
    await ledger.save(db, [account], at)
  })
}

export { ledger }

export interface Figures {
  readonly total: bigint
  readonly debt: bigint
  readonly price: bigint
  readonly carriedIn: bigint
  readonly carried: bigint
  readonly lines: readonly {
    readonly kind: string
    readonly description: string
    readonly amount: bigint
    readonly tickets: bigint | null
  }[]
}

/** The stored figures of an invoice. */
export async function figuresOf(world: World, { id }: Pick<Invoice, 'id'>): Promise<Figures> {
  const [row] = await world.rows('select * from invoices where id = $1', [id])
  const lines = await world.rows(
    'select * from invoice_lines where invoice_id = $1 order by position',
    [id],
  )
  const amount = (column: string): bigint => BigInt(row?.[column] ?? '')
  return {
    total: amount('total_cents'),
    debt: amount('debt_attos'),
    price: amount('price_attos'),
    carriedIn: amount('carried_in_attos'),
    carried: amount('carried_attos'),
    lines: lines.map((line) => ({
      kind: line['kind'] ?? '',
      description: line['description'] ?? '',
      amount: BigInt(line['amount_attos'] ?? ''),
      tickets: line['tickets'] === null ? null : BigInt(line['tickets'] ?? ''),
    })),
  }
}

/** Overage minus payments. */
export async function debtOf(world: World, { userId: id }: UserKey): Promise<bigint> {
  const [row] = await world.rows(
    'select overage_attos - collected_attos as debt from balances where user_id = $1',
    [id],
  )
  return BigInt(row?.['debt'] ?? '')
}

export const attos = usdAttos
