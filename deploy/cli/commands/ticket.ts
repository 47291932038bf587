import type {
  Ticket,
  TicketCharge,
  TicketDraw,
  TicketSale,
} from '../../../proto/gen/ts-proto/tollgate/usage/v1/tickets.ts'
import { action, createCommand } from '../command.ts'
import { usd } from '../money.ts'
import { appFilter, argument } from '../options.ts'
import { properties } from '../output.ts'

export const ticket = createCommand('ticket', {
  summary: 'explains the cost and the charge of one ticket',
  examples: ['./tollgate ticket 6a0f2e64-4c3e-4d0e-9b1b-1f5f5a4b8a10'],
  action: action({
    text:
      "Shows the ticket of the event ID: its fee, the rate, the plan version and the price rule, the platform's " +
      'cut, the period, and the credits that it burned; below them the calculation, to check with a pocket ' +
      'calculator. ID is the eventId of the usage history.',
    options: { eventId: argument('ID'), clientId: appFilter },
    read: async (core, request) => (await core.tickets.explainTicket(request)).ticket,
    lines: (answer) => (answer ? linesOf(answer) : []),
  }),
})

type Row = [name: string, value: string]

function linesOf({ formula, ...ticket }: Ticket): string[] {
  return [
    ...properties([...ticketRows(ticket), ...(ticket.sale ? saleRows(ticket.sale) : [])]),
    '',
    ...formula,
  ]
}

const ticketRows = (ticket: Omit<Ticket, 'formula'>): Row[] => [
  ['ticket', ticket.eventId],
  ['app', ticket.clientId],
  ['user', ticket.externalUserId ?? ticket.endUserId],
  ['request', ticket.gatewayRequestId],
  ['session', `${ticket.sessionId}, number ${ticket.sequenceNumber}`],
  ['feature', `${ticket.pipeline}:${ticket.modelId}`],
  ['signed', ticket.signedAt],
  ...(ticket.clockAheadMs === undefined
    ? []
    : [['test clock', `${ticket.clockAheadMs} ms ahead of the signer`] satisfies Row]),
  ['fee', `${ticket.feeWei} wei`],
]

const saleRows = ({ rate, plan, rule, cut, period, charge, ...sale }: TicketSale): Row[] => [
  [
    'rate',
    rate
      ? `${usd({ exact: rate.usdPerEth })} for 1 ETH, ${rate.source}, ${rate.observedAt}, id ${rate.id}`
      : '',
  ],
  ['network cost', usd({ exact: sale.networkCostUsd })],
  ['plan', plan ? `${plan.name}, version ${plan.version}, terms ${plan.termsId}` : 'not recorded'],
  [
    'price rule',
    rule
      ? `${rule.name}${rule.bundleId === undefined ? '' : ` ${rule.bundleId}`}, ${rule.retailRateUsd} USD per micro`
      : 'fixed elsewhere',
  ],
  ['retail cost', usd({ exact: sale.retailCostUsd })],
  ['platform cut', cut ? `${cut.percent} % since ${cut.since}` : 'none'],
  ['platform fee', `${usd({ exact: sale.platformFeeUsd })}, ${sale.platformFeeWei} wei`],
  ['owner charge', usd({ exact: sale.ownerChargeUsd })],
  ['period', period ? `${period.start} to ${period.end}` : 'not recorded'],
  ...(charge ? chargeRows(charge) : []),
]

function chargeRows({ share, draws, ...charge }: TicketCharge): Row[] {
  const count = charge.ticketCount ?? 'an unknown number of'
  const shared =
    share === undefined
      ? 'shared: only the whole charge is known'
      : share.draws.map(drawText).join(', ') || 'no credit'
  return [
    ['charge', `${charge.id}, entry ${charge.seq}, ${charge.bookedAt}, of ${count} tickets`],
    ['charge burned', draws.map(drawText).join(', ') || 'no credit'],
    ['charge overage', usd({ exact: charge.overageUsd })],
    ['ticket burned', shared],
    ...(share ? [['ticket overage', usd({ exact: share.overageUsd })] satisfies Row] : []),
  ]
}

const drawText = ({ creditId, kind, source, amountUsd }: TicketDraw): string =>
  `${usd({ exact: amountUsd })} of ${kind} ${source} ${creditId}`
