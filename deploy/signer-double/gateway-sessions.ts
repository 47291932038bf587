import { randomBytes } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import type { PayResult } from './client.ts'
import type { SignerDouble } from './signer-double.ts'
import type { SignedState } from './payment/state.ts'

export type GatewaySessionsOptions = Readonly<{
  sessions: number
  intervalMs: number
  /** Calls per session; undefined continues until the signal. */
  calls: number | undefined
  type: string
  app: string
  /** The end user's Authorization header; undefined sends none. */
  authorization: string | undefined
  /** Units per call of an untyped session. */
  inPixels: bigint
  signal: AbortSignal
  report: (line: string) => void
}>

const freshHash = (): string => `0x${randomBytes(32).toString('hex')}`

function describe(name: string, { status, body }: PayResult): string {
  if (status === 200) return `${name}: 200 paid`
  return `${name}: ${status} ${body.trim().slice(0, 200)}`
}

/**
 * Plays one gateway session: pays at every interval, `calls` times, and continues after a failure
 * like the SDKs.
 */
async function playSession(
  double: SignerDouble,
  name: string,
  options: GatewaySessionsOptions,
): Promise<void> {
  const { type, app, inPixels, authorization, intervalMs, signal, report } = options
  const { calls = Infinity } = options
  const headers = authorization === undefined ? [] : [['Authorization', authorization] as const]
  let recipientRandHash = freshHash()
  let state: SignedState | undefined
  for (let call = 1; !signal.aborted; call++) {
    const carried = state === undefined ? {} : { state }
    const orchestrator = { recipientRandHash, authSessionId: name }
    const session = { ...carried, manifestId: name, type, app, inPixels }
    const request = { ...session, headers, orchestrator, signal }
    const result = await double.pay(request).catch(() => undefined)
    if (signal.aborted) return
    report(result === undefined ? `${name}: the connection was closed` : describe(name, result))
    state = result?.state ?? state
    if (result?.status === 480) recipientRandHash = freshHash()
    if (call === calls) return
    await sleep(intervalMs, undefined, { signal }).catch(() => undefined)
  }
}

/**
 * Plays the sessions, started evenly over one interval, until each has made its calls or the signal
 * is aborted.
 */
export async function playSessions(
  double: SignerDouble,
  options: GatewaySessionsOptions,
): Promise<void> {
  const { sessions, intervalMs, signal } = options
  const started = Array.from({ length: sessions }, async (_, i) => {
    const wait = (intervalMs * i) / sessions
    await sleep(wait, undefined, { signal }).catch(() => undefined)
    await playSession(double, `drive-${i + 1}`, options)
  })
  await Promise.all(started)
}
