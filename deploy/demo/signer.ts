import type { Quickstart } from '../local/data-dir.ts'
import { directSink } from '../signer-double/events/direct-sink.ts'
import { type SignerDouble, createSignerDouble } from '../signer-double/signer-double.ts'
import type { Rate } from './service.ts'

const cent = 10_000_000_000_000_000n // 0.01 USD in atto-dollars

/** Wei that cost `cents` at `rate`. */
export const centsToWei = (cents: bigint, rate: Rate): bigint => (cents * cent * 10n ** 18n) / rate

/** Returns a signer of the service, whose tickets are worth `cents`. */
export function createDemoSigner(service: Quickstart, rate: Rate, cents: bigint): SignerDouble {
  const secret = service.webhookSecret
  let startedAt: bigint | undefined
  return createSignerDouble({
    ev: centsToWei(cents, rate),
    webhook: {
      url: `${service.sidecarUrl}/authorize`,
      headers: [['Authorization', `Bearer ${secret}`]] as const,
    },
    sinks: [directSink({ url: service.sidecarUrl, secret })],
    keepTickets: 1_000,
    // Only the demo moves this clock, so that each payment is for exactly five seconds. It starts
    // with the first payment.
    now: () => (startedAt ??= BigInt(Date.now()) * 1_000_000n),
  })
}
