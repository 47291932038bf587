import { randomUUID } from 'node:crypto'
import { credentials } from '@grpc/grpc-js'
import { unary } from '../../../core/lib/grpc.ts'
import {
  EscrowServiceClient,
  ReportRequest,
  type ReserveRequest,
} from '../../../proto/gen/ts-proto/tollgate/balances/v1/escrow.ts'
import { SignerServiceClient } from '../../../proto/gen/ts-proto/tollgate/signer/v1/signer.ts'
import { DomainError } from '../../../proto/errors.ts'
import { serviceTokenHeader } from '../../../proto/headers.ts'
import { startDeployed } from '../deployed.ts'
import type { Bench, Finding } from '../row.ts'
import { middleHalf, quantile } from '../stats.ts'
import { count as inWords } from '../table.ts'

const userCount = 1_000
const perSecond = 1_000
const deadlineMs = 5_000

/**
 * Measures reservations of single calls at an even rate, independent of the answers, with core in a
 * separate process and its database: the delay of a payment from the last cents of a balance.
 */
export async function reserve(bench: Bench): Promise<Finding[]> {
  const seconds = bench.quick ? 4 : 20
  const call = await openEscrow(bench)
  await atEvenRate(perSecond, { count: perSecond, call })
  const delays = await atEvenRate(perSecond, { count: perSecond * seconds, call })
  return [
    {
      name: `a reservation at core, p99 at ${inWords(perSecond)}/s`,
      unit: 's',
      target: { atMost: 0.015 },
      value: quantile(delays, 0.99),
      spread: middleHalf(delays),
      detail: `median ${(quantile(delays, 0.5) * 1000).toFixed(1)} ms, p99 ${(quantile(delays, 0.99) * 1000).toFixed(1)} ms over ${seconds} s, ${inWords(userCount)} users`,
    },
  ]
}

type Reserve = (n: number) => Promise<void>

interface EscrowOptions {
  /** More settings of core. */
  readonly env?: Readonly<Record<string, string>>
  readonly users?: number
}

/**
 * Starts core, and creates the users. Returns a function that reserves one call
 * at it.
 */
export async function openEscrow(
  bench: Bench,
  { env = {}, users = userCount }: EscrowOptions = {},
): Promise<Reserve> {
  const { operator, coreTarget, coreToken } = await startDeployed(bench, env)
  const { clientId } = await operator.apps.createApp({
    name: 'Bench',
    ownerEmail: undefined,
    ownerPassword: undefined,
    starterUsdMicros: undefined,
  })
  const escrow = new EscrowServiceClient(coreTarget, credentials.createInsecure())
  const signer = new SignerServiceClient(coreTarget, credentials.createInsecure())
  bench.defer(async () => [escrow, signer].forEach((client) => client.close()))
  const options = { deadlineMs, headers: { [serviceTokenHeader]: coreToken } }
  const getAccess = unary(signer.getAccess.bind(signer))
  const callReserve = unary(escrow.reserve.bind(escrow))
  const callReport = unary(escrow.report.bind(escrow))
  const sidecar = { id: 'bench', instance: randomUUID() }
  // Core creates unknown users in `getAccess`.
  for (let n = 0; n < users; n++)
    await getAccess({ clientId, externalUserId: userOf(n, users) }, options)
  const beat = () => callReport(ReportRequest.fromPartial({ sidecar }), options)
  await beat()
  const heart = setInterval(() => void beat().catch(() => undefined), 1_000)
  bench.defer(async () => clearInterval(heart))
  return async (n) => {
    const { answers } = await callReserve(requestOf({ sidecar, clientId, n, users }), options)
    const [answer] = answers
    if (answer?.refusal !== '') throw new Error(`refused: ${answer?.refusal}`)
  }
}

const userOf = (n: number, users: number): string => `user-${n % users}`

interface Payment {
  readonly sidecar: { readonly id: string; readonly instance: string }
  readonly clientId: string
  readonly n: number
  readonly users: number
}

function requestOf({ sidecar, clientId, n, users }: Payment): ReserveRequest {
  const now = Date.now()
  const authorisation = {
    leaseId: '',
    sessionId: `session-${n % users}`,
    sequence: BigInt(Math.floor(n / users)),
    signedSeconds: BigInt(Math.floor(now / 1000)),
    signedNanos: (now % 1000) * 1_000_000 + (n % 1_000_000),
    type: 'live',
    app: 'acme/echo',
    boundUsdAttos: '1000000000000',
    authorisedAt: BigInt(now),
    ageMillis: 0,
    keyId: '',
    approximate: false,
    offline: false,
    priceWei: '12000',
    priceUnits: '1',
  }
  return { sidecar, calls: [{ clientId, externalUserId: userOf(n, users), authorisation }] }
}

// A call that misses its deadline counts with its elapsed time.
function overlook(error: unknown): void {
  if (!(error instanceof DomainError) || error.reason !== 'UNAVAILABLE') throw error
}

/** Returns the seconds from each call's due time to its answer. */
export async function atEvenRate(
  rate: number,
  { count, call }: { readonly count: number; readonly call: Reserve },
): Promise<number[]> {
  const delays: number[] = []
  const done: Promise<void>[] = []
  const started = performance.now()
  const { promise, resolve } = Promise.withResolvers<void>()
  const sendDue = (): void => {
    for (; done.length < count;) {
      const due = started + (done.length * 1000) / rate
      if (due > performance.now()) break
      done.push(
        call(done.length)
          .catch(overlook)
          .then(() => void delays.push((performance.now() - due) / 1000)),
      )
    }
    if (done.length < count) setTimeout(sendDue, 1)
    else resolve()
  }
  sendDue()
  await promise
  await Promise.all(done)
  return delays
}
