import { bytes, int64, readMembers, object, text } from '../wire/go-json.ts'
import type { Members } from '../wire/go-json.ts'
import { readMaxPrice } from './price-ceiling.ts'
import type { MaxPrice } from './price-ceiling.ts'
import { decodeOrchestrator } from '../wire/orchestrator.ts'
import type { Orchestrator } from '../wire/orchestrator.ts'
import { refusal, refuseOnThrow } from '../refusal.ts'

/** A body of `POST /generate-live-payment` that passed all checks before those of the state. */
export type PaymentRequest = Readonly<{
  orchestrator: Orchestrator
  state: Readonly<{ bytes: Buffer; sig: Buffer }> | undefined
  manifestId: string
  app: string
  type: string
  inPixels: bigint
  maxPrice: MaxPrice | undefined
}>

function readOrchestrator(members: Members): Orchestrator {
  const encoded = bytes(members, 'orchestrator')
  if (encoded === undefined) throw refusal(400, 'missing orchestrator')
  const orchestrator = decodeOrchestrator(encoded)
  if (orchestrator.pricePerUnit <= 0n || orchestrator.pixelsPerUnit <= 0n) {
    throw refusal(400, 'missing or zero priceInfo')
  }
  if (!/^0x[0-9a-f]{40}$/.test(orchestrator.address)) {
    throw refusal(400, 'the orchestrator address has not 20 bytes')
  }
  if (orchestrator.recipientRandHash === '0x' || orchestrator.recipient.length !== 42) {
    throw refusal(400, 'missing or invalid ticketParams')
  }
  return orchestrator
}

function readCarriedState(members: Members): PaymentRequest['state'] {
  const state = object(members, 'state')
  if (state === undefined) return undefined
  const carried = bytes(state, 'State') ?? Buffer.alloc(0)
  return { bytes: carried, sig: bytes(state, 'Sig') ?? Buffer.alloc(0) }
}

function read(body: string): PaymentRequest {
  const members = readMembers(body)
  bytes(members, 'capabilities')
  const maxPrice = object(members, 'maxPrice')
  return {
    orchestrator: readOrchestrator(members),
    state: readCarriedState(members),
    manifestId: text(members, 'ManifestID') ?? '',
    app: text(members, 'app') ?? '',
    type: text(members, 'type') ?? '',
    inPixels: int64(members, 'inPixels') ?? 0n,
    maxPrice: maxPrice === undefined ? undefined : readMaxPrice(maxPrice),
  }
}

/** Reads the request. Refuses with 400 all requests that fail the signer's first checks. */
export const readPaymentRequest = (body: string): PaymentRequest =>
  refuseOnThrow(400, () => read(body))
