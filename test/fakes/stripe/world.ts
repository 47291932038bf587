import type { Plane } from '../../../core/billing/processor/port.ts'
import { StripeFault } from './faults.ts'

type Metadata = Record<string, string>

interface FakeObject<Kind extends string> {
  readonly id: string
  readonly object: Kind
  readonly created: number
  readonly livemode: boolean
}

export interface FakeCustomer extends FakeObject<'customer'> {
  description: string | null
  metadata: Metadata
  invoice_settings: { default_payment_method: string | null }
  deleted?: true
}

/** How a card behaves when it is charged without the user. */
export type CardBehaviour =
  | 'good'
  | 'card_declined'
  | 'insufficient_funds'
  | 'expired_card'
  | 'authentication_required'
  | 'processing'

export interface FakeCard {
  readonly brand: string
  readonly last4: string
  readonly exp_month: number
  readonly exp_year: number
}

export interface FakePaymentMethod extends FakeObject<'payment_method'> {
  readonly type: 'card'
  customer: string | null
  readonly card: FakeCard
}

export interface FakeSession extends FakeObject<'checkout.session'> {
  readonly mode: 'payment' | 'setup'
  readonly customer: string
  readonly client_reference_id: string | null
  readonly metadata: Metadata
  readonly amount_total: number | null
  readonly currency: string
  status: 'open' | 'complete' | 'expired'
  payment_status: 'paid' | 'unpaid' | 'no_payment_required'
  payment_intent: string | null
  setup_intent: string | null
  url: string | null
  readonly expires_at: number
  readonly success_url: string
  readonly cancel_url: string | null
}

export interface IntentError {
  readonly type: 'card_error'
  readonly code: string
  readonly decline_code?: string
  readonly message: string
}

export interface FakeIntent extends FakeObject<'payment_intent'> {
  readonly amount: number
  readonly currency: string
  readonly customer: string | null
  readonly description: string | null
  readonly metadata: Metadata
  readonly application_fee_amount: number | null
  payment_method: string | null
  status: 'requires_payment_method' | 'requires_action' | 'processing' | 'succeeded' | 'canceled'
  latest_charge: string | null
  last_payment_error: IntentError | null
}

export type PendingIntent = Pick<FakeIntent, 'description' | 'metadata' | 'application_fee_amount'>

export interface FakeSetupIntent extends FakeObject<'setup_intent'> {
  readonly customer: string
  payment_method: string | null
  status: 'requires_payment_method' | 'processing' | 'succeeded'
}

export interface FakeCharge extends FakeObject<'charge'> {
  readonly amount: number
  readonly currency: string
  readonly payment_intent: string
  readonly application_fee_amount: number | null
  readonly metadata: Metadata
  readonly status: 'succeeded' | 'failed'
  amount_refunded: number
  disputed: boolean
}

export interface FakeRefund extends FakeObject<'refund'> {
  readonly amount: number
  readonly currency: string
  readonly charge: string
  readonly payment_intent: string
  readonly metadata: Metadata
  status: 'pending' | 'succeeded' | 'failed'
}

export interface FakeDispute extends FakeObject<'dispute'> {
  readonly amount: number
  readonly currency: string
  readonly charge: string
  readonly payment_intent: string
  status: 'needs_response' | 'warning_needs_response' | 'won' | 'lost'
}

export interface FakePayout extends FakeObject<'payout'> {
  readonly amount: number
  readonly currency: string
  readonly status: string
  readonly arrival_date: number
  readonly failure_code: string | null
}

export interface FakeFeeRefund extends FakeObject<'fee_refund'> {
  readonly amount: number
  readonly currency: string
  readonly fee: string
}

export interface FakeApplicationFee extends FakeObject<'application_fee'> {
  readonly amount: number
  amount_refunded: number
  readonly currency: string
  readonly charge: string
}

export interface FakeTransaction extends FakeObject<'balance_transaction'> {
  readonly amount: number
  readonly currency: string
  readonly fee: number
  readonly net: number
  readonly fee_details: readonly { readonly type: string; readonly amount: number }[]
  readonly type: string
  readonly reporting_category: string
  readonly source: string
}

export interface FakeAccount extends FakeObject<'account'> {
  readonly email: string | null
  readonly metadata: Metadata
  charges_enabled: boolean
  payouts_enabled: boolean
  details_submitted: boolean
}

export type WorldObject =
  | FakeCustomer
  | FakePaymentMethod
  | FakeSession
  | FakeIntent
  | FakeSetupIntent
  | FakeCharge
  | FakeRefund
  | FakeDispute
  | FakePayout
  | FakeApplicationFee
  | FakeFeeRefund
  | FakeTransaction

type Kind = WorldObject['object']
type OfKind<K extends Kind> = Extract<WorldObject, { object: K }>

const prefixes: Readonly<Record<Kind, string>> = {
  customer: 'cus',
  payment_method: 'pm',
  'checkout.session': 'cs',
  payment_intent: 'pi',
  setup_intent: 'seti',
  charge: 'ch',
  refund: 're',
  dispute: 'dp',
  payout: 'po',
  application_fee: 'fee',
  fee_refund: 'fr',
  balance_transaction: 'txn',
}

/** All objects of one account in one plane. `account` is null for the platform's own. */
export function createWorld(
  plane: Plane,
  account: string | null,
  { seconds, nextNumber }: { seconds: () => number; nextNumber: () => number },
) {
  const objects = new Map<string, WorldObject>()
  const kinds = new Map<Kind, WorldObject[]>()
  const isLive = plane === 'live'
  /** Behaviours of cards, which Stripe's objects do not show. */
  const behaviours = new Map<string, CardBehaviour>()
  /** What the payments of open sessions will hold. */
  const pending = new Map<string, PendingIntent>()

  /** The fields that every new object has. */
  function head<K extends Kind>(object: K): FakeObject<K> {
    const suffix = nextNumber().toString(36).padStart(14, '0')
    const word = object === 'checkout.session' ? `${isLive ? 'live' : 'test'}_` : ''
    const id = `${prefixes[object]}_${word}${suffix}`
    return { id, object, created: seconds(), livemode: isLive }
  }

  function add<T extends WorldObject>(object: T): T {
    objects.set(object.id, object)
    const list = kinds.get(object.object)
    if (list) list.push(object)
    else kinds.set(object.object, [object])
    return object
  }

  const isKind = <K extends Kind>(object: WorldObject | undefined, kind: K): object is OfKind<K> =>
    object?.object === kind

  /** Throws Stripe's error if there is no such object; `param` is the parameter that names it. */
  function get<K extends Kind>(kind: K, id: string, param?: string): OfKind<K> {
    const object = objects.get(id)
    if (isKind(object, kind) && !('deleted' in object)) return object
    throw StripeFault.missing(kind.replaceAll('.', ' '), id, param)
  }

  /** Objects of one kind, newest first. */
  function* list<K extends Kind>(kind: K): Generator<OfKind<K>> {
    const all = kinds.get(kind) ?? []
    for (let at = all.length - 1; at >= 0; at--) {
      const object = all[at]
      if (isKind(object, kind)) yield object
    }
  }

  return {
    plane,
    account,
    head,
    add,
    get,
    list,
    behaviours,
    pending,
    find: (id: string) => objects.get(id),
  }
}

export type World = ReturnType<typeof createWorld>
