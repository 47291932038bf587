import type { ProcessorAccount } from '../../../core/billing/processor/port.ts'
import { type GateSigner, ethUsd } from './gate.ts'
import type { Merchants } from './merchants.ts'

/** Compares the processor's payments with the invoices, and both with the ledger and the signer. */

const attosOfCent = 10n ** 16n

type Reader = Pick<Merchants, 'sql' | 'stripe'>

const difference = (left: readonly string[], right: readonly string[]): string[] => {
  const other = new Set(right)
  return left.filter((text) => !other.has(text))
}

/** Accounts of the processor with payments. */
type Places = readonly ProcessorAccount[]

const keyOf = (at: ProcessorAccount): string => `${at.plane} ${at.account ?? ''}`

/** Successful payments at the processor: id, place, amount, fee. */
function paymentsThere({ stripe }: Reader, places: Places): string[] {
  return places.flatMap((at) =>
    [...stripe.world(at).list('payment_intent')]
      .filter(({ status }) => status === 'succeeded')
      .map(
        ({ id, amount, application_fee_amount: fee }) => `${id} ${keyOf(at)} ${amount} ${fee ?? 0}`,
      ),
  )
}

async function paymentsHere({ sql }: Reader): Promise<string[]> {
  const { rows } = await sql.query<{ text: string }>(
    `select processor_id || ' ' || plane || ' ' || account_id || ' ' || amount_cents || ' ' || fee_cents as text
     from payments`,
  )
  return rows.map(({ text }) => text)
}

/**
 * What is wrong between invoices, payments and the processor: payments on one side only, references
 * with two payments, invoices that are paid twice or not in full, refunds, undecided charges.
 */
export async function paymentProblems(reader: Reader, places: Places): Promise<unknown[]> {
  const { sql, stripe } = reader
  const [there, here] = [paymentsThere(reader, places), await paymentsHere(reader)]
  const oneSided = [...difference(there, here), ...difference(here, there)]
  const doubled = here.filter((text, at) => here.indexOf(text) !== at)
  const references = places.flatMap((at) =>
    [...stripe.world(at).list('payment_intent')].map(({ metadata }) => metadata['reference'] ?? ''),
  )
  const repeated = references.filter((text, at) => references.indexOf(text) !== at)
  const refunds = places.flatMap((at) => [...stripe.world(at).list('refund')].map(({ id }) => id))
  const { rows } = await sql.query(
    `select i.id, i.total_cents, c.state, count(p.id)::int as payments, sum(p.amount_cents) as paid
     from invoices i
     left join collections c on c.app_id = i.app_id and c.invoice_id = i.id
     left join payments p on p.app_id = i.app_id and p.invoice_id = i.id
     group by i.app_id, i.id, i.total_cents, c.state
     having case when c.state is null or c.state = 'paid'
       then count(p.id) <> 1 or sum(p.amount_cents) <> i.total_cents
       else count(p.id) > 0 end`,
  )
  const { rows: unbilled } = await sql.query('select id from payments where invoice_id is null')
  const { rows: open } = await sql.query(
    `select id, state, failure from payment_attempts where state = 'started' or surplus_at is not null`,
  )
  return [...oneSided, ...doubled, ...repeated, ...refunds, ...rows, ...unbilled, ...open]
}

interface AccountRow {
  readonly client_id: string
  readonly name: string
  readonly consumed: string
  readonly collected: string
  readonly prices: string
  readonly owner: string | null
}

/**
 * Accounts whose consumption is not what the signer signed, or whose collected debt is not what the
 * processor took for it, to the atto-dollar.
 */
export async function ledgerProblems(
  reader: Reader,
  places: Places,
  signer: GateSigner,
): Promise<unknown[]> {
  const { rows } = await reader.sql.query<AccountRow>(
    `select c.client_id, u.external_user_id as name, b.consumed_attos::text as consumed, b.collected_attos::text as collected,
            (select coalesce(sum(i.price_attos), 0)::text from invoices i join payments p on p.app_id = i.app_id and p.invoice_id = i.id
             where i.app_id = b.app_id and i.user_id = b.user_id) as prices
     from balances b
     join clients c on c.app_id = b.app_id and c.kind = 'public'
     join end_users u on u.app_id = b.app_id and u.id = b.user_id`,
  )
  const signed = await signedByAccount(reader, signer)
  const taken = await takenByAccount(reader, places)
  return rows.flatMap((row) => {
    const key = `${row.client_id}:${row.name}`
    const found = { consumed: BigInt(row.consumed), collected: BigInt(row.collected) }
    const right = {
      consumed: signed.get(key) ?? 0n,
      collected: (taken.get(key) ?? 0n) - BigInt(row.prices),
    }
    const isRight = found.consumed === right.consumed && found.collected === right.collected
    return isRight ? [] : [{ key, found, right }]
  })
}

/** The cost of signed tickets by user, and by the account of the app's owner. */
async function signedByAccount(reader: Reader, signer: GateSigner): Promise<Map<string, bigint>> {
  const owners = await ownersOfApps(reader)
  const sums = new Map<string, bigint>()
  for (const { authId, fee } of signer.stats().tickets) {
    const owner = owners.get(authId.slice(0, authId.indexOf(':'))) ?? ''
    for (const key of [authId, owner]) sums.set(key, (sums.get(key) ?? 0n) + fee * ethUsd)
  }
  return sums
}

/** What the processor took by user, with the fees of the payments by owner, in atto-dollars. */
async function takenByAccount(reader: Reader, places: Places): Promise<Map<string, bigint>> {
  const owners = await ownersOfApps(reader)
  const { rows } = await reader.sql.query<{ customer_id: string; client_id: string; name: string }>(
    `select k.customer_id, c.client_id, u.external_user_id as name
     from processor_customers k
     join clients c on c.app_id = k.app_id and c.kind = 'public'
     join end_users u on u.app_id = k.app_id and u.id = k.user_id`,
  )
  const customers = new Map(rows.map((row) => [row.customer_id, row]))
  const sums = new Map<string, bigint>()
  const add = (key: string, cents: number): void =>
    void sums.set(key, (sums.get(key) ?? 0n) + BigInt(cents) * attosOfCent)
  for (const at of places)
    for (const intent of reader.stripe.world(at).list('payment_intent')) {
      if (intent.status !== 'succeeded') continue
      const payer = customers.get(intent.customer ?? '')
      add(`${payer?.client_id}:${payer?.name}`, intent.amount)
      const fee = intent.application_fee_amount ?? 0
      if (fee > 0) add(owners.get(payer?.client_id ?? '') ?? 'nobody', fee)
    }
  return sums
}

/** The keys of owners' accounts by client id of their apps. */
async function ownersOfApps({ sql }: Reader): Promise<Map<string, string>> {
  const { rows } = await sql.query<{ client_id: string; platform: string; account: string }>(
    `select c.client_id, p.client_id as platform, m.account_id as account
     from members m
     join clients c on c.app_id = m.app_id and c.kind = 'public'
     cross join platform_app o
     join clients p on p.app_id = o.app_id and p.kind = 'public'
     where m.role = 'owner'`,
  )
  return new Map(
    rows.map(({ client_id: app, platform, account }) => [app, `${platform}:account:${account}`]),
  )
}
