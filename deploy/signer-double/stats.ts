import type { QueueStats } from './events/lossy-queue.ts'
import type { Payment } from './payment/payment.ts'
import { round } from './wire/rational.ts'
import type { SessionState } from './payment/state.ts'

/** One create_signed_ticket, with the figures that a test compares with a ledger. */
export type TicketRecord = Readonly<{
  /** The envelope's id: the deduplication key. */
  id: string
  requestId: string
  sessionId: string
  sequenceNumber: bigint
  authId: string
  type: string
  /** Wei, equal to the event's computed_fee. */
  fee: bigint
  numTickets: bigint
  /** Nanoseconds since 1970, equal to the event's current_time. */
  currentTime: bigint
  /** False if the queue lost it, so that no collector can receive it. */
  queued: boolean
}>

export type Stats = Readonly<{
  requests: number
  webhookCalls: number
  /** Number of answers by status. */
  answers: Readonly<Record<number, number>>
  /** Both event types, as counted by the lossy queue. */
  events: Readonly<QueueStats>
  /** The newest tickets, up to the configured number. */
  tickets: readonly TicketRecord[]
  /** Totals of all signed tickets, in number and wei, and of those that the queue accepted. */
  signed: Readonly<{ tickets: number; fee: bigint; queuedTickets: number; queuedFee: bigint }>
}>

export type Signed = Readonly<{
  id: string
  payment: Payment
  state: SessionState
  queued: boolean
}>

function toRecord({ id, payment, state, queued }: Signed): TicketRecord {
  return {
    id,
    requestId: payment.requestId,
    sessionId: state.stateId,
    sequenceNumber: state.sequenceNumber,
    authId: state.authId,
    type: state.type,
    fee: round(payment.fee),
    numTickets: payment.tickets.count,
    currentTime: payment.now,
    queued,
  }
}

/** Counts calls, answers and tickets; `limit` is the maximum number of stored tickets. */
export function createRecorder(limit: number) {
  let requests = 0
  let webhookCalls = 0
  const answers: Record<number, number> = {}
  const tickets: TicketRecord[] = []
  const signed = { tickets: 0, fee: 0n, queuedTickets: 0, queuedFee: 0n }

  function ticket(event: Signed): void {
    const record = toRecord(event)
    signed.tickets += 1
    signed.fee += record.fee
    signed.queuedTickets += Number(event.queued)
    signed.queuedFee += event.queued ? record.fee : 0n
    tickets.push(record)
    if (tickets.length > limit) tickets.shift()
  }

  return {
    request: () => {
      requests += 1
    },
    webhookCall: () => {
      webhookCalls += 1
    },
    answer: (status: number) => {
      answers[status] = (answers[status] ?? 0) + 1
    },
    ticket,
    read: (events: Readonly<QueueStats>): Stats => ({
      requests,
      webhookCalls,
      answers: { ...answers },
      events,
      tickets: [...tickets],
      signed: { ...signed },
    }),
  }
}

export type Recorder = ReturnType<typeof createRecorder>
