import { newDecisionId } from '../../../proto/decision-id.ts'
import { Decision } from '../../../proto/gen/ts-proto/tollgate/signer/v1/decisions.ts'

/**
 * Returns a record as a sidecar sends it: ada's call refused because of an insufficient balance.
 */
export function decisionOf(at: Date, clientId: string, parts: Partial<Decision> = {}): Decision {
  const decision = Decision.fromPartial({
    id: newDecisionId(at.getTime(), true),
    sidecarId: 'sidecar-1',
    decidedAt: at.toISOString(),
    durationMicros: 210,
    status: 483,
    code: 'insufficient_balance',
    reason: 'insufficient balance',
    occasion: 'refusal',
    rule: 'insufficient_balance',
    credential: {
      kind: 'api_key',
      id: '0192f3a0-0000-7000-8000-000000000000',
      clientId,
      externalUserId: 'ada',
      source: 'memory',
      ageMs: 12_300,
    },
    session: {
      id: '9f86d081',
      type: 'live',
      app: '',
      sequence: '7',
      lastUpdate: '2026-03-10T12:00:00.123456789Z',
      priceWei: '100',
      priceUnits: '1',
      priorCall: { sequence: '6', at: '2026-03-10T11:59:50Z', source: 'sidecar' },
    },
    money: {
      source: 'lease',
      boundUsdNanos: '3300000',
      remainingUsdNanos: '0',
      remainingAgeMs: 400,
      accessAgeMs: 300,
      lease: {
        id: '0192f3a0-0000-7000-8000-000000000001',
        amountUsdNanos: '500000000',
        leftUsdNanos: '10000',
        ageMs: 3_100,
        endsInMs: 24_900,
      },
      usdPerEth: '3000',
      rateAgeMs: 4_000,
      rateRaised: false,
    },
  })
  return { ...decision, ...parts }
}
