import http from 'node:http'
import net from 'node:net'
import type { AddressInfo } from 'node:net'
import { onTestFinished } from 'vitest'
import type { PayResult } from '../../../deploy/signer-double/client.ts'
import { createSignerDouble } from '../../../deploy/signer-double/signer-double.ts'
import type { SignerDouble } from '../../../deploy/signer-double/signer-double.ts'
import type { SignerDoubleOptions } from '../../../deploy/signer-double/options.ts'
import { callbackSink } from '../../../deploy/signer-double/events/sinks.ts'
import type { SignedState } from '../../../deploy/signer-double/payment/state.ts'

export type Call = Readonly<{
  method: string
  url: string
  rawHeaders: readonly string[]
  body: string
  /** Number of the call's TCP connection. */
  connection: number
}>

/** The webhook's reaction to a call. */
export type Script = (call: Call, response: http.ServerResponse) => void

export const answer =
  (body: string, status = 200): Script =>
  (_call, response) => {
    response.writeHead(status, { 'Content-Type': 'application/json' })
    response.end(body)
  }

export const allow = answer('{"status":200,"auth_id":"acme:alice"}')

const address = (server: net.Server): AddressInfo => {
  const bound = server.address()
  if (bound === null || typeof bound === 'string') throw new Error('the server does not listen')
  return bound
}

async function listening(server: net.Server): Promise<string> {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return `http://127.0.0.1:${address(server).port}`
}

export type Webhook = { readonly url: string; readonly calls: Call[]; script: Script }

/** Starts a real HTTP server that replaces the sidecar and records every call. */
export async function startWebhook(script: Script = allow): Promise<Webhook> {
  const calls: Call[] = []
  const connections = new Map<net.Socket, number>()
  const server = http.createServer((request, response) => {
    const chunks: Buffer[] = []
    request.on('data', (chunk: Buffer) => chunks.push(chunk))
    request.on('end', () => {
      const { method = '', url = '', rawHeaders, socket } = request
      const connection = connections.get(socket) ?? 0
      const call = { method, url, rawHeaders, body: Buffer.concat(chunks).toString(), connection }
      calls.push(call)
      webhook.script(call, response)
    })
  })
  server.on('connection', (socket) => connections.set(socket, connections.size + 1))
  const webhook: Webhook = { url: `${await listening(server)}/authorize`, calls, script }
  onTestFinished(() => {
    server.closeAllConnections()
    server.close()
  })
  return webhook
}

/** Starts a bare TCP server that keeps the bytes of each request and answers a fixed response. */
export async function startRawWebhook(response: string) {
  let bytes = ''
  const sockets = new Set<net.Socket>()
  const server = net.createServer((socket) => {
    sockets.add(socket)
    let request = ''
    socket.on('data', (chunk) => {
      bytes += chunk.toString('latin1')
      request += chunk.toString('latin1')
      const length = Number(/content-length: (\d+)/i.exec(request)?.[1] ?? 0)
      const head = request.indexOf('\r\n\r\n')
      if (head < 0 || request.length < head + 4 + length) return
      request = ''
      socket.write(response)
    })
    socket.on('error', () => undefined)
  })
  const url = `${await listening(server)}/authorize`
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy()
    server.close()
  })
  return { url, bytes: () => bytes }
}

export type Envelope = Readonly<{
  id: string
  type: string
  timestamp: string
  gateway: string
  data: Readonly<Record<string, string | number | null>>
}>

export type Started = SignerDouble & Readonly<{ url: string; events: string[] }>

/** 2026-09-14T10:15:30.123456789Z, the instant of the contract's first example. */
export const T0 = 1_789_380_930_123_456_789n

/** Starts a double with a fixed clock; its events are in `events`. */
export async function startDouble(options: SignerDoubleOptions = {}): Promise<Started> {
  const events: string[] = []
  const sinks = [callbackSink((bytes) => events.push(bytes)), ...(options.sinks ?? [])]
  const double = createSignerDouble({ now: () => T0, ev: 100n, ...options, sinks })
  const { url } = await double.start()
  onTestFinished(() => double.stop())
  return { ...double, url, events }
}

export function parsed(events: readonly string[], type = 'create_signed_ticket'): Envelope[] {
  const envelopes = events.map((bytes): Envelope => JSON.parse(bytes))
  return envelopes.filter((envelope) => envelope.type === type)
}

/** Returns the message inside go-livepeer's error envelope. */
export function messageOf(body: string): string {
  const envelope: { error: { message: string } } = JSON.parse(body)
  return envelope.error.message
}

/** Returns the state for the next call. Throws when the call was refused. */
export function stateOf({ status, body, state }: PayResult): SignedState {
  if (state === undefined) throw new Error(`no state, but ${status} ${body}`)
  return state
}

export const decode = ({ State }: SignedState): string => Buffer.from(State, 'base64').toString()

/** A price of `fee` wei for each call of type `fixed`. */
export const fixedPrice = (fee: bigint): SignerDoubleOptions => ({
  orchestrator: { pricePerUnit: fee, pixelsPerUnit: 1n },
})

/** Sends the bytes of one request unchanged and returns the received bytes. */
export function exchange(url: string, request: string): Promise<string> {
  const { hostname, port } = new URL(url)
  return new Promise((resolve, reject) => {
    const socket = net.connect(Number(port), hostname, () => socket.write(request, 'latin1'))
    let response = ''
    socket.on('data', (chunk) => {
      response += chunk.toString('latin1')
    })
    socket.on('close', () => resolve(response))
    socket.on('error', reject)
  })
}
