import { create, fromBinary, toBinary } from '@bufbuild/protobuf'
import { OrchestratorInfoSchema } from '../../../proto/gen/signer-double/orchestrator_pb.ts'

/** A gateway's `orchestrator`, as an OrchestratorInfo of lp_rpc.proto. */
export type Orchestrator = Readonly<{
  /** Service URI of the orchestrator. */
  url: string
  /** `0x` and 40 hex digits, any case. */
  address: string
  recipient: string
  /** recipientRandHash, `0x` and hex: the ticket session; a refresh brings a new one. */
  recipientRandHash: string
  /** Session id of the orchestrator's auth token. */
  authSessionId: string
  /** Wei per `pixelsPerUnit` units. */
  pricePerUnit: bigint
  pixelsPerUnit: bigint
}>

/** Reads an OrchestratorInfo; absent fields become empty. Throws an Error on invalid bytes. */
export function decodeOrchestrator(bytes: Buffer): Orchestrator {
  const { transcoder, address, ticketParams, priceInfo, authToken } = fromBinary(
    OrchestratorInfoSchema,
    bytes,
  )
  return {
    url: transcoder,
    address: hex(address),
    recipient: hex(ticketParams?.recipient),
    recipientRandHash: hex(ticketParams?.recipientRandHash),
    authSessionId: authToken?.sessionId ?? '',
    pricePerUnit: priceInfo?.pricePerUnit ?? 0n,
    pixelsPerUnit: priceInfo?.pixelsPerUnit ?? 0n,
  }
}

/** Writes the format that `decodeOrchestrator` reads. */
export function encodeOrchestrator(orchestrator: Orchestrator): Buffer {
  const { recipient, recipientRandHash, pricePerUnit, pixelsPerUnit } = orchestrator
  const info = create(OrchestratorInfoSchema, {
    transcoder: orchestrator.url,
    ticketParams: { recipient: unhex(recipient), recipientRandHash: unhex(recipientRandHash) },
    priceInfo: { pricePerUnit, pixelsPerUnit },
    address: unhex(orchestrator.address),
    authToken: { sessionId: orchestrator.authSessionId },
  })
  return Buffer.from(toBinary(OrchestratorInfoSchema, info))
}

const hex = (bytes: Uint8Array | undefined): string =>
  `0x${Buffer.from(bytes ?? []).toString('hex')}`

// A copy, because the bytes of a small Buffer share a pool.
const unhex = (text: string): Uint8Array<ArrayBuffer> =>
  Uint8Array.from(Buffer.from(text.replace(/^0x/i, ''), 'hex'))
