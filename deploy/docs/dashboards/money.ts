import { type Dashboard, perSecond } from './dashboard.ts'

/** Debts of owners to the platform, and of users to apps. */
const owed = (kind: string): Record<string, string> => ({
  'to {{payee}}': `max by (payee) (tollgate_billing_owed_usd{plane="live",kind="${kind}"})`,
})

export const moneyDashboard: Dashboard = {
  uid: 'money',
  title: 'money',
  text: 'How much is owed, collected, lent and lost? Test money is shown only where the legend says so.',
  rows: [
    [
      {
        title: 'Owed, on no invoice',
        text: 'Overage of users that no invoice has yet. At most five minutes old.',
        queries: owed('uninvoiced'),
        unit: 'currencyUSD',
        isNumber: true,
      },
      {
        title: 'Owed, invoiced',
        text: 'Unpaid invoices whose charge is due or under way.',
        queries: owed('invoiced'),
        unit: 'currencyUSD',
        isNumber: true,
      },
      {
        title: 'Owed, overdue',
        text: 'Invoices whose charge has failed. They are charged again by plan.',
        queries: owed('overdue'),
        unit: 'currencyUSD',
        isNumber: true,
        alert: 'TollgatePaymentsFail',
      },
      {
        title: 'Uncollectible',
        text: 'Invoices for which every charge failed.',
        queries: owed('uncollectible'),
        unit: 'currencyUSD',
        isNumber: true,
      },
      {
        title: 'Collected in 24 h',
        text: 'Payments of the last 24 hours, before refunds.',
        queries: {
          'by {{payee}}':
            'sum by (payee) (max by (payee, purpose) (delta(tollgate_billing_collected_usd{plane="live"}[1d])))',
        },
        unit: 'currencyUSD',
        isNumber: true,
      },
      {
        title: 'Lost tickets',
        text: 'Estimated cost of tickets of the last 7 days that were signed and never arrived. Normal: 0.',
        queries: { lost: 'max(tollgate_metering_lost_estimated_usd)' },
        unit: 'currencyUSD',
        isNumber: true,
        limits: [0.01, 10],
        alert: 'TollgateTicketsLost',
      },
    ],
    [
      {
        title: 'Owed',
        text: 'All unpaid money by plane and kind: of owners to the platform, and of users to apps.',
        queries: {
          '{{plane}} {{kind}} to {{payee}}':
            'max by (plane, payee, kind) (tollgate_billing_owed_usd)',
        },
        unit: 'currencyUSD',
      },
      {
        title: 'Collected and returned per hour',
        text: 'Payments by purpose, and refunds and disputes, by plane.',
        queries: {
          '{{plane}} {{purpose}} to {{payee}}':
            'max by (plane, payee, purpose) (delta(tollgate_billing_collected_usd[1h]))',
          '{{plane}} {{kind}} from {{payee}}':
            'max by (plane, payee, kind) (delta(tollgate_billing_returned_usd[1h]))',
        },
        unit: 'currencyUSD',
      },
      {
        title: 'Charges of cards',
        text: 'Ended charges by result. declined and no_card are the users’ cards, processor_… are not.',
        queries: perSecond('tollgate_billing_payment_attempts_total', 'result'),
        unit: 'short',
        alert: 'TollgatePaymentsFail',
      },
      {
        title: 'What waits',
        text: 'Age of the oldest undecided charge, due collection, unbooked refund or dispute, and unhandled event of the processor.',
        queries: {
          'undecided charge': 'max(tollgate_billing_payment_attempts_age_seconds)',
          collection: 'max(tollgate_billing_collections_age_seconds)',
          'refund or dispute': 'max(tollgate_billing_returns_age_seconds)',
          'processor event': 'max(tollgate_billing_processor_events_age_seconds)',
        },
        unit: 's',
        limits: [600, 86_400],
        alert: 'TollgateChargesUndecided',
      },
    ],
    [
      {
        title: 'Held',
        text: 'Lent to sidecars, the part under ended leases, and pending until tickets arrive.',
        queries: { '{{kind}}': 'max by (kind) (tollgate_escrow_held_usd)' },
        unit: 'currencyUSD',
        alert: 'TollgateEventsMissing',
      },
      {
        title: 'How holds end',
        text: 'USD per second. settled is normal; lost, charged, released and orphaned had no ticket.',
        queries: {
          settled: 'sum(rate(tollgate_escrow_settled_usd_total[$__rate_interval]))',
          ...perSecond('tollgate_escrow_ended_usd_total', 'end'),
          late: 'sum(rate(tollgate_escrow_late_usd_total[$__rate_interval]))',
          'late after release':
            'sum(rate(tollgate_escrow_late_after_release_usd_total[$__rate_interval]))',
        },
        unit: 'currencyUSD',
        alert: 'TollgateCallsUnticketed',
      },
      {
        title: 'Leases of core',
        text: 'USD per second that core lent, that was used, returned, reserved for single calls, and reported after the end of a lease.',
        queries: {
          lent: 'sum(rate(tollgate_escrow_lent_usd_total[$__rate_interval]))',
          used: 'sum(rate(tollgate_escrow_used_usd_total[$__rate_interval]))',
          returned: 'sum(rate(tollgate_escrow_returned_usd_total[$__rate_interval]))',
          reserved: 'sum(rate(tollgate_escrow_reserved_usd_total[$__rate_interval]))',
          'reported late': 'sum(rate(tollgate_escrow_late_reported_usd_total[$__rate_interval]))',
        },
        unit: 'currencyUSD',
      },
      {
        title: 'Recalled leases',
        text: 'Users whose leases were recalled, because somebody else needs the money or it changed.',
        queries: perSecond('tollgate_escrow_recalled_total'),
        unit: 'short',
      },
    ],
    [
      {
        title: 'Checkouts',
        text: 'Checkouts that ended. A refused one was paid and not credited: it needs an operator.',
        queries: {
          '{{purpose}} {{result}}':
            'sum by (purpose, result) (rate(tollgate_billing_checkouts_total[$__rate_interval]))',
        },
        unit: 'short',
        alert: 'TollgatePaymentRefused',
      },
      {
        title: 'Steps of collections',
        text: 'Invoices issued, carried (below the minimum), charged, and postponed.',
        queries: perSecond('tollgate_billing_collections_total', 'result'),
        unit: 'short',
        alert: 'TollgateCollectionsLate',
      },
      {
        title: 'Refunds and disputes',
        text: 'Money that went back, and that came again.',
        queries: perSecond('tollgate_billing_returns_total', 'kind'),
        unit: 'short',
      },
      {
        title: 'Events of the payment processor',
        text: 'repeated is normal, failed is handled again.',
        queries: perSecond('tollgate_billing_processor_events_total', 'result'),
        unit: 'short',
        alert: 'TollgateProcessorEventsWait',
      },
    ],
    [
      {
        title: 'Differences to the processor',
        text: 'Open differences between the processor and our payments, and undecided charges of a processor that is not in use any more. Normal: 0.',
        queries: {
          '{{subject}}': 'max by (subject) (tollgate_billing_processor_differences)',
          'charges elsewhere': 'max(tollgate_billing_payment_attempts_of_other_processors)',
        },
        unit: 'short',
        limits: [1, 1],
        alert: 'TollgateProcessorDifferences',
      },
      {
        title: 'Comparison with the processor',
        text: 'Time up to which the account that was compared longest ago is not compared. An hour is normal, a day is the pause.',
        queries: { age: 'max(tollgate_billing_reconciliation_age_seconds)' },
        unit: 's',
        limits: [100_000, 172_800],
        alert: 'TollgateReconciliationLate',
      },
      {
        title: 'Activation gate',
        text: 'What the gate refused (true), or would have refused (false).',
        queries: {
          '{{code}} {{enforced}}':
            'sum by (code, enforced) (rate(tollgate_activation_gate_denials_total[$__rate_interval]))',
        },
        unit: 'short',
      },
      {
        title: 'Books',
        text: 'Age of entries without a checkpoint, delay of daily roots, and changed prices. Normal: below two hours, 0, 0.',
        queries: {
          'without checkpoint (s)': 'max(tollgate_core_books_checkpoint_age_seconds)',
          'roots late (s)': 'max(tollgate_core_receipt_roots_late_seconds)',
          'price differences': 'max(tollgate_core_price_differences)',
        },
        unit: 'short',
        alert: 'TollgateBooksUnsealed',
      },
    ],
  ],
}
