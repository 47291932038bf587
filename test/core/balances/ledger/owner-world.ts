import { expect } from 'vitest'
import { type CoreClient, connectCore } from '../../../../deploy/cli/client.ts'
import { type BooksWorld, eventOf, startBooks, tollgate } from '../../books/support.ts'
import { observedRate, serviceToken } from '../../support.ts'

/** A core with customers' apps, whose owners pay owner charges (decision 59). */
export interface OwnersWorld extends BooksWorld {
  readonly operator: CoreClient
  /** Creates a customer's app with an owner and a cut of 10 percent. */
  ownedApp(options?: { email?: string; isCustomer?: boolean; isTest?: boolean }): Promise<OwnedApp>
  /** The account user of an owner; null before its first charge. */
  accountOf(app: OwnedApp): Promise<OwnerAccount | null>
}

export interface OwnedApp {
  readonly clientId: string
  readonly email: string
}

export interface OwnerAccount {
  readonly consumed: bigint
  readonly overage: bigint
  readonly balance: bigint
  /** Charges, in order: app, amount and number of tickets. */
  readonly charges: readonly { clientId: string; amount: bigint; tickets: number }[]
}

export const dollar = 10n ** 18n
/** 3 USD at a rate of 3000. */
const threeDollars = '1000000000000000'
/** Network cost and platform fee of one ticket. */
export const perTicket = (33n * dollar) / 10n

export async function startOwners(
  env: Readonly<Record<string, string>> = {},
): Promise<OwnersWorld> {
  const world = await startBooks({ ...observedRate, ...env })
  const operator = connectCore({ target: world.core.target, token: serviceToken, tls: undefined })
  let named = 0

  async function ownedApp({
    email = `owner-${(named += 1)}@example.com`,
    isCustomer = true,
    isTest = false,
  } = {}): Promise<OwnedApp> {
    const created = await world
      .as()
      .createApp({ name: 'Shop', ownerEmail: email, isCustomer, isTest })
    const { clientId } = created
    await world.damage(`
      insert into platform_cuts (app_id, since, percent, created_at)
      select app_id, '2026-01-01T00:00:01Z', 10, '2026-01-01T00:00:00Z' from clients where client_id = '${clientId}'`)
    await world.chainPrices()
    return { clientId, email }
  }

  async function accountOf({ email }: OwnedApp): Promise<OwnerAccount | null> {
    const [row] = await world.rows(
      `select b.app_id, b.user_id, b.consumed_attos, b.overage_attos, b.balance_attos
       from balances b
       join platform_app p on p.app_id = b.app_id
       join end_users u on u.app_id = b.app_id and u.id = b.user_id
       join accounts a on u.external_user_id = 'account:' || a.id
       where a.email = $1`,
      [email],
    )
    if (!row) return null
    const charges = await world.rows(
      `select c.client_id, e.overage_attos - e.amount_attos as amount, e.ticket_count
       from ledger_entries e
       join clients c on c.app_id = e.charged_app_id and c.kind = 'public'
       where e.app_id = $1 and e.user_id = $2
       order by e.seq`,
      [row['app_id'], row['user_id']],
    )
    return {
      consumed: BigInt(row['consumed_attos'] ?? ''),
      overage: BigInt(row['overage_attos'] ?? ''),
      balance: BigInt(row['balance_attos'] ?? ''),
      charges: charges.map((charge) => ({
        clientId: charge['client_id'] ?? '',
        amount: BigInt(charge['amount'] ?? ''),
        tickets: Number(charge['ticket_count']),
      })),
    }
  }

  async function stop(): Promise<void> {
    operator.close()
    await world.stop()
  }

  return { ...world, operator, ownedApp, accountOf, stop }
}

let sequence = 0

/** Encodes a ticket of 3 USD for a user of the app. */
export const ticketOf = ({ clientId }: OwnedApp, user = 'ada', more: object = {}): Buffer =>
  eventOf({
    auth_id: `${clientId}:${user}`,
    session_id: `s-${(sequence += 1)}`,
    sequence_number: 0,
    computed_fee: threeDollars,
    ...more,
  })

export const differences = (text: string): string[] =>
  text.split('\n').filter((line) => line.startsWith('DIFFERENCE'))

/** Runs `tollgate verify`, which must find no difference. */
export async function expectRightBooks(): Promise<void> {
  const { code, text } = await tollgate('verify')
  expect(differences(text)).toEqual([])
  expect(code).toBe(0)
}
