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
  await atEvenRate(perSecond, call)
  const delays = await atEvenRate(perSecond * seconds, call)
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

async function openEscrow(bench: Bench): Promise<Reserve> {
  const { operator, coreTarget, coreToken } = await startDeployed(bench)
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
  for (let n = 0; n < userCount; n++)
    await getAccess({ clientId, externalUserId: userOf(n) }, options)
  const beat = () => callReport(ReportRequest.fromPartial({ sidecar }), options)
  await beat()
  const heart = setInterval(() => void beat().catch(() => undefined), 1_000)
  bench.defer(async () => clearInterval(heart))
  return async (n) => {
    const { answers } = await callReserve(requestOf({ sidecar, clientId, n }), options)
    const [answer] = answers
    if (answer?.refusal !== '') throw new Error(`refused: ${answer?.refusal}`)
  }
}

const userOf = (n: number): string => `user-${n % userCount}`

interface Payment {
  readonly sidecar: { readonly id: string; readonly instance: string }
  readonly clientId: string
  readonly n: number
}

function requestOf({ sidecar, clientId, n }: Payment): ReserveRequest {
  const now = Date.now()
  const authorisation = {
    leaseId: '',
    sessionId: `session-${n % userCount}`,
    sequence: BigInt(Math.floor(n / userCount)),
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
  return { sidecar, calls: [{ clientId, externalUserId: userOf(n), authorisation }] }
}

// A call that misses its deadline counts with its elapsed time.
function overlook(error: unknown): void {
  if (!(error instanceof DomainError) || error.reason !== 'UNAVAILABLE') throw error
}

/** Returns the seconds from each call's due time to its answer. */
async function atEvenRate(count: number, call: Reserve): Promise<number[]> {
  const delays: number[] = []
  const done: Promise<void>[] = []
  const started = performance.now()
  const { promise, resolve } = Promise.withResolvers<void>()
  const sendDue = (): void => {
    for (; done.length < count;) {
      const due = started + (done.length * 1000) / perSecond
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
