import { authId } from '../../shared/ids.ts'
import { type EthRate, type UsdAttos, formatDecimal18, usdAttos } from '../../lib/money.ts'
import type { Subject } from '../batch/subjects.ts'
import type { SignedTicket } from '../events/parse.ts'
import { customerKey, eventSource, eventType } from './catalog.ts'

/** The members of a ticket that its event contains. */
export type TicketFacts = Pick<
  SignedTicket,
  | 'eventId'
  | 'clientId'
  | 'externalUserId'
  | 'signedAt'
  | 'sessionId'
  | 'requestId'
  | 'manifestId'
  | 'pipeline'
  | 'modelId'
  | 'fee'
  | 'billableSecs'
  | 'pixels'
>

export interface PricedTicket {
  readonly ticket: TicketFacts
  readonly subject: Subject
  readonly price: {
    readonly rateId: bigint
    readonly cost: UsdAttos
    readonly retail: UsdAttos
    readonly platformFee: UsdAttos
    readonly termsId: bigint | null
  }
}

const microsFactor = 1_000_000n

/** Converts atto-dollars to an exact decimal of USD micros. */
export const exactMicros = (cost: UsdAttos): string => formatDecimal18(cost * microsFactor)

/**
 * Formats a ticket as the JSON text of a CloudEvent (docs/openmeter.md). Members that the backend sums
 * are JSON numbers with all digits, because it sums text as zero. It reads them as floats, so the
 * event also has the exact figures as text.
 */
export function toCloudEvent({ ticket, subject, price }: PricedTicket, rate: EthRate): string {
  const micros = exactMicros(price.cost)
  const data = [
    `"schema_version":"2"`,
    text('client_id', ticket.clientId),
    text('external_user_id', ticket.externalUserId),
    text('auth_id', authId(ticket.clientId, ticket.externalUserId)),
    text('end_user_id', subject.userId),
    text('pipeline', ticket.pipeline || 'unknown'),
    text('model_id', ticket.modelId || 'unknown'),
    text('manifest_id', ticket.manifestId || ticket.sessionId || ticket.requestId || 'unknown'),
    text('session_id', ticket.sessionId),
    text('gateway_request_id', ticket.requestId),
    `"network_fee_usd_micros":${micros}`,
    `"billable_usd_micros":${exactMicros(price.retail)}`,
    `"network_fee_usd_micros_exact":"${micros}"`,
    `"billable_usd_micros_exact":"${exactMicros(price.retail)}"`,
    `"owner_charge_usd_micros_exact":"${exactMicros(usdAttos(price.cost + price.platformFee))}"`,
    `"platform_fee_usd_micros_exact":"${exactMicros(price.platformFee)}"`,
    `"terms_id":${price.termsId === null ? 'null' : `"${price.termsId}"`}`,
    `"fee_wei":${ticket.fee}`,
    `"fee_wei_exact":"${ticket.fee}"`,
    `"billable_secs":${ticket.billableSecs}`,
    `"pixels":"${ticket.pixels}"`,
    `"eth_usd_price":"${formatDecimal18(rate)}"`,
  ]
  return (
    `{"specversion":"1.0","type":"${eventType}","source":"${eventSource}",${text('id', ticket.eventId)},` +
    `"time":"${ticket.signedAt}","subject":"${customerKey(subject.userId)}","datacontenttype":"application/json",` +
    `"data":{${data.join(',')}}}`
  )
}

const text = (name: string, value: string): string => `"${name}":${JSON.stringify(value)}`
