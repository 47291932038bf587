import type { ReactNode } from 'react'
import type { InvoicePayer } from '../api/attention.ts'
import type { Schemas } from '../api/client.ts'
import { Micros } from '../ui/amount.tsx'
import { formatCount } from '../ui/amounts.ts'
import { Instant } from '../ui/instant.tsx'

/** What of the API's answers needs attention. */

export interface Concern {
  readonly key: string
  readonly title: string
  readonly text: ReactNode
  /** Whether somebody loses money or access now. */
  readonly isUrgent: boolean
  readonly leadsTo?:
    | 'losses'
    | 'user-invoices'
    | 'owner-invoices'
    | 'payment'
    | 'settings'
    | 'webhooks'
    | 'ingest'
    | 'quarantine'
}

const soonMs = 7 * 86_400_000

export const missingSecret = (app: Schemas['App']): Concern | null =>
  app.m2mOidcClient?.hasSecret || !app.canEdit
    ? null
    : {
        key: 'secret',
        title: 'No client secret',
        text: 'No backend can call the API for this app.',
        isUrgent: true,
        leadsTo: 'settings',
      }

export const fromUnpriced = (count: number, isOperator: boolean): Concern | null =>
  count === 0
    ? null
    : {
        key: 'unpriced',
        title: 'Unpriced',
        text: (
          <>
            {plural(count, 'ticket waits', 'tickets wait')} for the price of ETH. No amount in
            dollars includes them yet; they are priced once the price is known.
            {isOperator && (
              <>
                {' '}
                An operator can record it with <code>./tollgate rate</code>.
              </>
            )}
          </>
        ),
        isUrgent: false,
        ...(isOperator && { leadsTo: 'ingest' as const }),
      }

/** Open events of all apps. Only platform admins see and decide about them. */
export function fromQuarantine({ waiting }: Schemas['QuarantineList']): Concern | null {
  const count = waiting.reduce((sum, { events }) => sum + Number(events), 0)
  return count === 0
    ? null
    : {
        key: 'quarantine',
        title: 'Quarantine',
        text: (
          <>
            {plural(count, 'signed event', 'signed events')} of all apps could not become tickets.
            Nobody has paid for them.
          </>
        ),
        isUrgent: true,
        leadsTo: 'quarantine',
      }
}

export function fromLoss({ totals, calls }: Schemas['UsageLoss']): Concern | null {
  if (totals.lostCount === 0 && calls.lostCount === 0 && calls.chargedCount === 0) return null
  return {
    key: 'losses',
    title: 'Losses',
    text: (
      <>
        {totals.lostCount > 0 && (
          <>
            {plural(totals.lostCount, 'ticket', 'tickets')} of the range never arrived, about{' '}
            <Micros value={totals.estimatedUsdMicros} /> that is not charged.{' '}
          </>
        )}
        {calls.lostCount > 0 && (
          <>
            {plural(calls.lostCount, 'signed call has', 'signed calls have')} no ticket and{' '}
            {calls.lostCount === 1 ? 'is' : 'are'} not charged, at most{' '}
            <Micros value={calls.lostUsdMicros} />.{' '}
          </>
        )}
        {calls.chargedCount > 0 && (
          <>
            {plural(calls.chargedCount, 'call is', 'calls are')} charged as an estimate, at most{' '}
            <Micros value={calls.chargedUsdMicros} />.
          </>
        )}
      </>
    ),
    isUrgent: false,
    leadsTo: 'losses',
  }
}

export function fromInvoices(
  payer: InvoicePayer,
  invoices: readonly Schemas['InvoiceSummary'][],
): Concern | null {
  const overdue = invoices.filter(({ status }) => status === 'overdue').length
  const lost = invoices.filter(({ status }) => status === 'uncollectible').length
  if (overdue + lost === 0) return null
  const parts = [
    ...(overdue > 0 ? [`${plural(overdue, 'is', 'are')} overdue and tried again`] : []),
    ...(lost > 0 ? [`${plural(lost, 'is', 'are')} uncollectible: the last try failed`] : []),
  ]
  const whose =
    payer === 'owner' ? "the platform's newest invoices to the owner" : 'newest invoices to users'
  return {
    key: `invoices ${payer}`,
    title: 'Failed payments',
    text: `Of the ${whose}, ${parts.join(', and ')}.`,
    isUrgent: true,
    leadsTo: payer === 'owner' ? 'owner-invoices' : 'user-invoices',
  }
}

export const fromState = ({ status, explain }: Schemas['BillingState']): Concern | null =>
  status === 'active'
    ? null
    : {
        key: 'state',
        title: { blocked: 'Blocked', at_risk: 'At risk', overage: 'Overage' }[status],
        text: `${explain.headline} ${explain.detail}`,
        isUrgent: status === 'blocked',
        leadsTo: 'payment',
      }

/**
 * Users of an app in billing mode merchant can pay nothing without an account at the processor. In
 * other modes only an account that somebody began to connect is missed.
 */
export const fromProcessor = ({
  processor,
  status,
  isPlatformOwned,
  billingMode,
}: Schemas['PaymentProcessor']): Concern | null =>
  processor === null ||
  isPlatformOwned ||
  status === 'connected' ||
  (billingMode !== 'merchant' && status !== 'pending')
    ? null
    : {
        key: 'processor',
        title: 'Payments',
        text:
          status === 'pending'
            ? 'The account at the payment processor may not take payments yet, or lacks details.'
            : 'No account at the payment processor is connected, so users cannot pay this app.',
        isUrgent: billingMode === 'merchant',
        leadsTo: 'payment',
      }

type Endpoint = Schemas['WebhookEndpoint']

const reasons: Readonly<Record<string, string>> = {
  gone: 'it answered 410',
  failing: 'five days passed without a success',
  backlog: 'too many deliveries waited',
}

export function fromEndpoint({
  id,
  url,
  status,
  disabledReason,
  failingSince,
}: Endpoint): Concern | null {
  const reason = reasons[disabledReason ?? '']
  if (status === 'disabled' && reason !== undefined)
    return {
      key: `endpoint ${id}`,
      title: 'Webhook off',
      text: (
        <>
          <code>{url}</code> receives nothing any more, because {reason}.
        </>
      ),
      isUrgent: true,
      leadsTo: 'webhooks',
    }
  return status === 'active' && failingSince !== null
    ? {
        key: `endpoint ${id}`,
        title: 'Webhook fails',
        text: (
          <>
            <code>{url}</code> has failed since <Instant at={failingSince} />.
          </>
        ),
        isUrgent: false,
        leadsTo: 'webhooks',
      }
    : null
}

interface Ending {
  readonly expiresAt: string | null
}

interface Secrets {
  readonly client: readonly Ending[]
  readonly signer: readonly Ending[]
  readonly endpoints: readonly Pick<Endpoint, 'secrets'>[]
}

/** Old secrets that soon stop working: their holders must use the new ones by then. */
export function fromSecrets({ client, signer, endpoints }: Secrets, now: number): Concern[] {
  const hooks = endpoints.flatMap(({ secrets }) => secrets)
  return [
    fromEndings({ kind: 'client', leadsTo: 'settings' }, client, now),
    fromEndings({ kind: 'signer', leadsTo: 'settings' }, signer, now),
    fromEndings({ kind: 'webhook', leadsTo: 'webhooks' }, hooks, now),
  ].filter((each) => each !== null)
}

function fromEndings(
  { kind, leadsTo }: { readonly kind: string; readonly leadsTo: 'settings' | 'webhooks' },
  secrets: readonly Ending[],
  now: number,
): Concern | null {
  const ends = secrets
    .flatMap(({ expiresAt }) => (expiresAt === null ? [] : [expiresAt]))
    .filter((at) => Date.parse(at) > now && Date.parse(at) - now < soonMs)
    .sort()
  const [first] = ends
  return first === undefined
    ? null
    : {
        key: `expiring ${kind}`,
        title: 'Secrets expire',
        text: (
          <>
            {plural(ends.length, `old ${kind} secret stops`, `old ${kind} secrets stop`)} working
            soon, the first <Instant at={first} />. Check that the new ones are in use.
          </>
        ),
        isUrgent: false,
        leadsTo,
      }
}

const plural = (count: number, one: string, many: string): string =>
  `${formatCount(count)} ${count === 1 ? one : many}`
