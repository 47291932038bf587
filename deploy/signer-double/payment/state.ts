import { createHmac, timingSafeEqual } from 'node:crypto'
import { int64, readMembers, object, text } from '../wire/go-json.ts'
import type { Members } from '../wire/go-json.ts'
import type { Dialect } from '../dialect.ts'
import { writeJson } from '../wire/go-json.ts'
import type { JsonOut } from '../wire/go-json.ts'
import { readMaxPrice, writeMaxPrice } from './price-ceiling.ts'
import type { MaxPrice } from './price-ceiling.ts'
import { parseRatText, ratText } from '../wire/rational.ts'
import type { Rational } from '../wire/rational.ts'
import { formatTime, parseTime } from '../wire/time.ts'

/**
 * One payment session, carried by the client: the signer stores nothing (docs/signer-webhook.md,
 * "State").
 */
export type SessionState = Readonly<{
  stateId: string
  pmSessionId: string
  lastUpdate: bigint
  orchestratorAddress: string
  app: string
  authExpiry: bigint
  senderNonce: bigint
  /** Wei of credit left at the orchestrator. */
  balance: Rational
  initialPricePerUnit: bigint
  initialPixelsPerUnit: bigint
  type: string
  sequenceNumber: bigint
  authId: string
  /** Only the successor signer has the following three. */
  authPolicy: string
  authMaxPrice: MaxPrice | undefined
  manifestId: string
}>

/** The pair that a client receives and sends back: base64 of the state's JSON, and its MAC. */
export type SignedState = Readonly<{ State: string; Sig: string }>

export type StateFormat = Readonly<{ dialect: Dialect; utcOffsetMinutes: number }>

/** Writes the members of `state` in the order and types of docs/signer-webhook.md ("State"). */
export function writeState(state: SessionState, format: StateFormat): JsonOut {
  const { dialect, utcOffsetMinutes } = format
  return {
    StateID: state.stateId,
    PMSessionID: state.pmSessionId,
    LastUpdate: formatTime(state.lastUpdate, utcOffsetMinutes),
    OrchestratorAddress: state.orchestratorAddress,
    ...(dialect.knowsApp && { App: state.app }),
    AuthExpiry: state.authExpiry,
    SenderNonce: state.senderNonce,
    Balance: ratText(state.balance),
    InitialPricePerUnit: state.initialPricePerUnit,
    InitialPixelsPerUnit: state.initialPixelsPerUnit,
    ...(dialect.knowsApp && { Type: state.type }),
    SequenceNumber: state.sequenceNumber,
    AuthID: state.authId,
    ...(dialect.successor && {
      AuthPolicy: state.authPolicy,
      AuthMaxPrice: writeMaxPrice(state.authMaxPrice),
      ManifestID: state.manifestId,
    }),
  }
}

function ceilingIn(members: Members): MaxPrice | undefined {
  const ceiling = object(members, 'AuthMaxPrice')
  return ceiling === undefined ? undefined : readMaxPrice(ceiling)
}

function readState(json: string): SessionState {
  const members = readMembers(json)
  const words = (name: string): string => text(members, name) ?? ''
  const integer = (name: string): bigint => int64(members, name) ?? 0n
  return {
    stateId: words('StateID'),
    pmSessionId: words('PMSessionID'),
    lastUpdate: parseTime(words('LastUpdate')),
    orchestratorAddress: words('OrchestratorAddress'),
    app: words('App'),
    authExpiry: integer('AuthExpiry'),
    senderNonce: integer('SenderNonce'),
    balance: parseRatText(words('Balance')),
    initialPricePerUnit: integer('InitialPricePerUnit'),
    initialPixelsPerUnit: integer('InitialPixelsPerUnit'),
    type: words('Type'),
    sequenceNumber: integer('SequenceNumber'),
    authId: words('AuthID'),
    authPolicy: words('AuthPolicy'),
    authMaxPrice: ceilingIn(members),
    manifestId: words('ManifestID'),
  }
}

export type StateBox = Readonly<{
  seal: (state: SessionState) => SignedState
  /** Throws an Error when the MAC is wrong or the state is unreadable. */
  open: (state: Buffer, sig: Buffer) => SessionState
}>

/**
 * Seals states so that a client can carry them. A sealed state can be opened any number of times.
 */
export function createStateBox(key: Buffer, format: StateFormat): StateBox {
  const mac = (state: Buffer): Buffer => createHmac('sha256', key).update(state).digest()
  return {
    seal: (session) => {
      const state = Buffer.from(writeJson(writeState(session, format)))
      return { State: state.toString('base64'), Sig: mac(state).toString('base64') }
    },
    open: (state, sig) => {
      const expected = mac(state)
      if (sig.length !== expected.length || !timingSafeEqual(sig, expected)) {
        throw new Error('invalid state signature')
      }
      return readState(state.toString())
    },
  }
}
