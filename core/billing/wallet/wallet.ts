import type { Allowances } from '../../balances/credit/allowances.ts'
import { microsDown } from '../../lib/money.ts'
import type { Pool } from '../../lib/sql.ts'
import type { AppId } from '../../shared/ids.ts'
import type { Customers } from '../payments/customers.ts'
import { type FoundPayer, type Payers, isUnplaceable } from '../payments/payers.ts'
import type { Card } from '../processor/port.ts'
import { formatUsd } from './amounts.ts'
import { type BillingState, toBillingState } from './billing-state.ts'
import { findStanding } from './standing-store.ts'
import { type PayPerUsePlan, listPayPerUse } from './store.ts'

export interface WalletsDeps {
  readonly pool: Pool
  readonly payers: Pick<Payers, 'place'>
  /** Null without a payment processor. */
  readonly customers: Pick<Customers, 'findCard'> | null
  readonly allowances: Pick<Allowances, 'stateOf'>
  readonly now: () => Date
}

export interface Wallet {
  readonly balance: {
    readonly balanceUsdMicros: string
    readonly consumedUsdMicros: string
    readonly lifetimeGrantedUsdMicros: string
  }
  readonly state: BillingState
  readonly plans: readonly PayPerUsePlan[]
}

/** What a payer has, how it is charged, and whether it may spend (docs/payments.md). */
export function createWallets({ pool, payers, customers, allowances, now }: WalletsDeps) {
  /** Returns what a payer of the app's usage has, with the app's plans that are paid by use. */
  async function read(app: AppId, payer: FoundPayer): Promise<Wallet> {
    const [{ balance, state }, plans] = await Promise.all([
      readPayer(payer),
      listPayPerUse(pool, app),
    ])
    return { balance, state, plans }
  }

  /** Like `read`, without the plans. */
  async function readPayer(payer: FoundPayer): Promise<Omit<Wallet, 'plans'>> {
    const { billingMode, user, payee } = payer
    const [{ balance, money }, card, standing] = await Promise.all([
      allowances.stateOf(user),
      findCard(payer),
      findStanding(pool, user),
    ])
    const { externalUserId } = user
    const isOwner = payee === null
    const state = toBillingState({ billingMode, isOwner, externalUserId, money, standing, card })
    return { balance, state }
  }

  async function findCard(payer: FoundPayer): Promise<Card | null> {
    const placed = await payers.place(payer).catch(nullIfCardless)
    if (placed === null || customers === null) return null
    return (await customers.findCard(placed, now()))?.card ?? null
  }

  return { read, readPayer }
}

/** Without a processor, or before the app's account is connected, no payer can have a card. */
function nullIfCardless(error: unknown): null {
  if (isUnplaceable(error)) return null
  throw error
}

export type Wallets = ReturnType<typeof createWallets>

/** One sentence: when the user of a plan of type usage is charged. */
export function resolveBehavior({ threshold }: PayPerUsePlan): string {
  const first = 'Usage draws down included usage and prepaid credits first'
  return threshold === null
    ? `${first}; what is left unpaid is charged to the card on file at the end of each billing period.`
    : `${first}; when unpaid usage reaches $${formatUsd(microsDown(threshold))} the card on file is charged.`
}
