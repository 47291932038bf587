import { randomUUID } from 'node:crypto'

interface Signed {
  readonly id?: string
  /** The user, as the webhook answered it to the signer. */
  readonly authId: string
  /** In wei. */
  readonly computed_fee?: string
}

/** Returns one event of the signer with all of its fields: a ticket signed now. */
export const signedTicket = ({ id = randomUUID(), authId, computed_fee = '120000' }: Signed) => ({
  id,
  type: 'create_signed_ticket',
  timestamp: String(Date.now()),
  gateway: '',
  data: {
    app: '',
    auth_id: authId,
    billable_secs: 5.5,
    computed_fee,
    cost: '12000.0',
    current_time: new Date().toISOString(),
    current_time_unix: Date.now(),
    manifest_id: 'm',
    num_tickets: 1,
    orch_address: '0x5b',
    orch_url: 'https://o.example',
    pipeline: 'live',
    pixels: 0,
    pm_session_id: '0x2b',
    request_id: '1a2b3c4d',
    sequence_number: 0,
    session_balance: '1',
    session_id: '9f86d081',
    session_status: 'new',
  },
})
