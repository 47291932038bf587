import { setTimeout as sleep } from 'node:timers/promises'
import { newSecret } from '../../../core/lib/crypto.ts'
import { type Figures, type Helper, figure, startHelper } from '../helper.ts'
import type { Bench } from '../row.ts'
import { count as inWords } from '../table.ts'
import { clientId, connections, portOf, serverCore } from './parts.ts'
import type { LoadQuestion } from './paid-call-load.ts'
import { attosPerWei, openCircle } from './paid-call-parts.ts'
import type { Payer } from './paid-call-session.ts'
import { issuer } from './tokens.ts'

export const userCount = 2_000
// As many keys as fit into one process argument.
const peerKeys = 1_000
const settledMs = 30_000

/** Starts the circle, a bare server and the peer, and uses every part once. */
export async function openRun(bench: Bench) {
  const circle = await openCircle(bench, userCount)
  const { load, sidecar, secret, payers, pool, operator } = circle
  const ask = (question: LoadQuestion): Promise<Figures> => load.ask(question)
  const strangers = newStrangers()
  const bare = await startServer(bench, 'bare-server.ts', bareAnswer(payers[0]))
  const keys = Object.fromEntries(
    strangers.map(({ credential }, i) => [credential, `stranger-${i}`]),
  )
  const settings = JSON.stringify({ secret, issuer, clientId, keys })
  const peer = await startServer(bench, 'gate/other-webhook.ts', settings)
  for (const open of ['bare', 'peer'])
    await ask({ open, secret, payers: strangers, count: userCount })
  await ask({ open: 'own', secret, payers, count: userCount })
  const sum = { allowed: 0, feeWei: 0n }

  /** Sends calls to the sidecar. Throws if one is refused. */
  async function call(options: CallOptions): Promise<Figures> {
    const figures = await tryCall(options)
    if (figure(figures, 'allowed') !== options.calls)
      throw new Error(`not all of ${options.calls} calls were allowed: ${refusalsIn(figures)}`)
    return figures
  }

  /** Sends calls that may be refused. */
  async function tryCall(options: CallOptions): Promise<Figures> {
    const figures = await ask({ of: 'own', ports: [sidecar.port], connections, ...options })
    note(figures)
    return figures
  }

  function note(figures: Figures): void {
    sum.allowed += figures['allowed'] ?? 0
    sum.feeWei += BigInt(figures['feeWei'] ?? 0)
    // A repeated push may have been booked before.
    const isDouble = figures['duplicates'] && !figures['repeats']
    if (isDouble || figures['quarantined'] || figures['ignored'])
      throw new Error(`tickets were not booked: ${JSON.stringify(figures)}`)
  }

  /** Pushes the kept tickets and waits until all are settled. */
  async function push(): Promise<void> {
    note(await ask({ push: sidecar.port }))
    await settle()
  }

  async function settle(): Promise<void> {
    for (const until = Date.now() + settledMs; ; await sleep(50)) {
      const pending = await pendingAttos()
      if (pending === '0') return
      if (Date.now() > until) throw new Error(`${pending} attos are still pending`)
    }
  }

  async function pendingAttos(): Promise<string> {
    const { rows } = await pool.query<{ pending: string }>(
      'select sum(pending_attos)::text as pending from balances',
    )
    return rows[0]?.pending ?? ''
  }

  /**
   * Throws unless each allowed call was charged once and no hold remains after the sidecars have
   * stopped.
   */
  async function check(): Promise<void> {
    await settle()
    for (const one of circle.sidecars()) {
      await one.stop()
      if (one.errors.length > 0) throw new Error(`a sidecar logged ${one.errors.join('\n')}`)
    }
    const { rows } = await pool.query<Record<'tickets' | 'consumed' | 'held', string>>(
      `select (select count(distinct (session_id, sequence_number, signed_at)) from tickets)::text as tickets,
              sum(consumed_attos)::text as consumed, sum(lent_attos + pending_attos)::text as held
       from balances`,
    )
    const all = { clientId: undefined, startDate: undefined, endDate: undefined }
    const { calls } = await operator.losses.getLossReport(all)
    const allowed = String(sum.allowed)
    requireSame(
      { ...rows[0], authorised: calls?.authorisedCount, ticketed: calls?.ticketedCount },
      {
        tickets: allowed,
        consumed: String(sum.feeWei * attosPerWei),
        held: '0',
        authorised: allowed,
        ticketed: allowed,
      },
    )
    bench.say(`paid-call: each of ${inWords(sum.allowed)} calls was charged once, nothing is held`)
  }

  // Begins every session and uses every part once.
  await call({ calls: 3 * userCount, perSecond: 1_000, tickets: 'pushed' })
  await settle()
  await call({ calls: 4 * userCount, tickets: 'kept' })
  await push()
  for (const [of, server] of [
    ['bare', bare],
    ['peer', peer],
  ] as const)
    await ask({ of, ports: [portOf(server)], connections, calls: 5_000, tickets: 'forgotten' })
  return { circle, ask, bare, peer, call, tryCall, push, settle, check }
}

export type Run = Awaited<ReturnType<typeof openRun>>

export interface CallOptions {
  readonly calls: number
  readonly of?: string
  readonly ports?: readonly number[]
  readonly repeats?: boolean
  readonly perSecond?: number
  readonly tickets: 'pushed' | 'kept'
}

function requireSame(found: object, expected: object): void {
  const [left, right] = [JSON.stringify(found), JSON.stringify(expected)]
  if (left !== right) throw new Error(`${left} instead of ${right}`)
}

const newStrangers = (): Payer[] =>
  Array.from({ length: peerKeys }, (_, i) => ({
    credential: newSecret('svc_ak_'),
    authId: `${clientId}:stranger-${i}`,
  }))

const bareAnswer = (payer: Payer | undefined): string =>
  JSON.stringify({ status: 200, auth_id: payer?.authId, expiry: 0 })

async function startServer(bench: Bench, program: string, arg: string): Promise<Helper> {
  const helper = await startHelper({ program, args: [arg], core: serverCore })
  bench.defer(helper.stop)
  return helper
}

/** Formats refusals as `status503: 17, ...`. */
export const refusalsIn = (figures: Figures): string =>
  Object.entries(figures)
    .filter(([name]) => name.startsWith('status') && name !== 'status200')
    .map(([name, value]) => `${name}: ${value}`)
    .join(', ') || 'none'
