import { type Db, maybeOne, sql } from '../../lib/sql.ts'
import { type UserKey, appId, userId } from '../../shared/ids.ts'
import type { Card, PaymentProcessor, Plane, ProcessorAccount } from '../processor/port.ts'

type ProcessorKind = PaymentProcessor['kind']

/** Writes processor_customers: the processor's records of users who pay. */

export interface Customer extends UserKey {
  readonly at: ProcessorAccount
  readonly customerId: string
  /** The default card when it was last read; null without one. */
  readonly card: Card | null
  /** When the card was last read; null if never. */
  readonly readAt: Date | null
  /** Whether the processor has deleted the customer, and no other took its place. */
  readonly isGone: boolean
  /** Ids of earlier customers, which the processor has deleted. */
  readonly formerIds: readonly string[]
}

type CustomerKey = Pick<Customer, 'appId' | 'userId' | 'at' | 'customerId'>

interface CustomerRow {
  app_id: string
  user_id: string
  plane: Plane
  account_id: string
  customer_id: string
  card_id: string | null
  card_brand: string
  card_last4: string
  card_expires_month: number
  card_expires_year: number
  card_read_at: Date | null
  gone_at: Date | null
  former_ids: string[]
}

/** The value of the column account_id for an account of the processor. */
export const accountColumn = ({ account }: ProcessorAccount): string => account ?? ''

const customerFromRow = (row: CustomerRow): Customer => ({
  appId: appId(row.app_id),
  userId: userId(row.user_id),
  at: { plane: row.plane, account: row.account_id === '' ? null : row.account_id },
  customerId: row.customer_id,
  card:
    row.card_id === null
      ? null
      : {
          id: row.card_id,
          brand: row.card_brand,
          last4: row.card_last4,
          expiresMonth: row.card_expires_month,
          expiresYear: row.card_expires_year,
        },
  readAt: row.card_read_at,
  isGone: row.gone_at !== null,
  formerIds: row.former_ids,
})

const columns = `app_id, user_id, plane, account_id, customer_id, card_id, card_brand, card_last4, card_expires_month,
  card_expires_year, card_read_at, gone_at, former_ids`

interface CustomerPlace {
  readonly at: ProcessorAccount
  readonly processor: ProcessorKind
}

/** Returns the user's customer in one account of the processor; null if there is none. */
export async function findCustomer(
  db: Db,
  user: UserKey,
  place: CustomerPlace,
): Promise<Customer | null> {
  const row = await maybeOne<CustomerRow>(db, selectOfUser(user, place))
  return row && customerFromRow(row)
}

/** As `findCustomer`. The card does not change until the transaction ends. */
export async function holdCustomer(
  db: Db,
  user: UserKey,
  place: CustomerPlace,
): Promise<Customer | null> {
  const { text, values } = selectOfUser(user, place)
  const row = await maybeOne<CustomerRow>(db, { text: `${text} for share`, values })
  return row && customerFromRow(row)
}

const selectOfUser = ({ appId: app, userId: user }: UserKey, { at, processor }: CustomerPlace) => ({
  text: `
    select ${columns}
    from processor_customers
    where app_id = $1 and user_id = $2 and processor = $3 and plane = $4 and account_id = $5`,
  values: [app, user, processor, at.plane, accountColumn(at)],
})

/** Returns the customer with the processor's id in that account; null for an unknown one. */
export async function findByCustomerId(
  db: Db,
  customerId: string,
  { at, processor }: CustomerPlace,
): Promise<Customer | null> {
  const row = await maybeOne<CustomerRow>(db, {
    text: `
    select ${columns}
    from processor_customers
    where customer_id = $1 and processor = $2 and plane = $3 and account_id = $4`,
    values: [customerId, processor, at.plane, accountColumn(at)],
  })
  return row && customerFromRow(row)
}

/**
 * Stores a new customer, in place of one that is gone. Keeps the existing one if another process was
 * faster.
 */
export async function insertCustomer(
  db: Db,
  {
    appId: app,
    userId: user,
    at,
    customerId,
    processor,
    createdAt,
  }: CustomerKey & {
    readonly processor: ProcessorKind
    readonly createdAt: Date
  },
): Promise<void> {
  await db.query(sql`
    insert into processor_customers (app_id, user_id, processor, plane, account_id, customer_id, created_at)
    values (${app}, ${user}, ${processor}, ${at.plane}, ${accountColumn(at)}, ${customerId}, ${createdAt})
    on conflict (app_id, user_id, processor, plane, account_id) do update
    set customer_id = excluded.customer_id, gone_at = null, card_read_at = null,
        former_ids = processor_customers.former_ids || processor_customers.customer_id
    where processor_customers.gone_at is not null`)
}

/** Stores the default card as read at `readAt`. An older reading changes nothing. */
export async function saveCard(
  db: Db,
  { appId: app, userId: user, at, customerId }: CustomerKey,
  { card, readAt }: { readonly card: Card | null; readonly readAt: Date },
): Promise<void> {
  await db.query(sql`
    update processor_customers
    set card_id = ${card?.id ?? null}, card_brand = ${card?.brand ?? null}, card_last4 = ${card?.last4 ?? null},
        card_expires_month = ${card?.expiresMonth ?? null}, card_expires_year = ${card?.expiresYear ?? null},
        card_read_at = ${readAt}
    where app_id = ${app} and user_id = ${user} and plane = ${at.plane} and account_id = ${accountColumn(at)}
      and customer_id = ${customerId} and gone_at is null and (card_read_at is null or card_read_at <= ${readAt})`)
}

/**
 * Notes that the processor has deleted the customer, and with it the card. Returns false if that was
 * known, or another customer took its place.
 */
export async function saveGone(
  db: Db,
  { appId: app, userId: user, at, customerId }: CustomerKey,
  goneAt: Date,
): Promise<boolean> {
  const { rowCount } = await db.query(sql`
    update processor_customers
    set gone_at = ${goneAt}, card_id = null, card_brand = null, card_last4 = null, card_expires_month = null,
        card_expires_year = null, card_read_at = ${goneAt}
    where app_id = ${app} and user_id = ${user} and plane = ${at.plane} and account_id = ${accountColumn(at)}
      and customer_id = ${customerId} and gone_at is null`)
  return rowCount === 1
}
