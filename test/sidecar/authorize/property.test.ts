import * as fc from 'fast-check'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createMetrics } from '../../../core/lib/metrics.ts'
import { silentLog } from '../../../core/lib/log.ts'
import { type Sidecar, startSidecar } from '../../../sidecar/server.ts'
import { type CoreDouble, startCoreDouble } from '../../fakes/sidecar-core.ts'
import { type Reply, configOf, post, secret, vectorNow } from '../support.ts'
import { firstCall } from '../signer-bodies.ts'
import { readSize, testSeed } from '../../support/run/sizes.ts'

const fuzzMs = readSize('TEST_FUZZ_MS')
const searches = 6
const effort =
  fuzzMs > 0
    ? {
        numRuns: Infinity,
        interruptAfterTimeLimit: fuzzMs / searches,
        markInterruptAsFailure: false,
      }
    : { numRuns: 500 }
const timeout = 30_000 + fuzzMs
let core: CoreDouble
let sidecar: Sidecar

beforeAll(async () => {
  process.stdout.write(`property 40: TEST_SEED=${testSeed}\n`)
  core = await startCoreDouble()
  core.keys.set('sk_live_alice', { clientId: 'acme', externalUserId: 'alice', keyId: 'k' })
  core.users.set('acme:alice', { micros: 10n ** 15n })
  const env = {
    SIGNING_TTL_SECONDS: '10',
    UNTYPED_CALL_USD: '0.000001',
    MAX_PRICE_LIVE_WEI: '13000',
  }
  sidecar = await startSidecar(configOf({ CORE_TARGET: core.target, ...env }), {
    log: silentLog(),
    metrics: createMetrics('sidecar'),
    now: () => new Date(vectorNow * 1000),
    keyShape: { looksLikeKey: (text) => text.startsWith('sk_'), isWellFormed: () => true },
  })
})
afterAll(async () => {
  await sidecar.stop()
  core.stop()
})

const steering = new Set([480, 481, 482])
const decide = (body: string | Buffer) =>
  post(`${sidecar.url}/authorize`, body, { authorization: `Bearer ${secret}` })

/** Returns the laws of property 40 that an answer breaks. */
function broken({ transport, text, json }: Reply): string[] {
  const { status, expiry, auth_id: authId, reason } = json
  const isAllowed = status === 200 && transport === 200
  const laws = {
    transport: transport === 200 || transport === 400,
    literal: /^\{"status":\d+[,}]/.test(text),
    status:
      isAllowed ||
      (Number(status) >= 400 && Number(status) <= 599 && !steering.has(Number(status))),
    reason: isAllowed || typeof reason === 'string',
    identity: isAllowed
      ? typeof authId === 'string' && authId !== '' && Buffer.byteLength(authId) <= 256
      : authId === undefined,
    expiry: isAllowed
      ? Number.isInteger(expiry) && (expiry === 0 || isInWindow(Number(expiry)))
      : expiry === undefined,
  }
  return Object.entries(laws).flatMap(([law, holds]) =>
    holds ? [] : [`${law}: ${transport} ${text}`],
  )
}

const isInWindow = (expiry: number): boolean => expiry >= vectorNow && expiry <= vectorNow + 60

const hostile = fc.oneof(
  fc.constantFrom(
    '',
    '1/0',
    '-1',
    '1e999',
    'Infinity',
    '2026-13-99T99:99:99Z',
    '2026-09-14T10:15:30.123456789Z',
    '__proto__',
  ),
  fc.integer(),
  fc.double(),
  fc.boolean(),
  fc.constant(null),
  fc.string({ unit: 'binary' }),
  fc.array(fc.string()),
  fc.dictionary(fc.string(), fc.string()),
  fc.maxSafeInteger(),
)
const member = fc.constantFrom(...Object.keys(firstCall().state))
const state = fc.oneof(
  hostile,
  fc.dictionary(member, hostile).map((changed) => ({ ...firstCall().state, ...changed })),
)
const credential = fc.constantFrom(
  'Bearer sk_live_alice',
  'bearer  sk_live_alice',
  'Bearer sk_x',
  'Bearer a.b.c',
  'Basic x',
  '',
)
const headers = fc.oneof(
  hostile,
  fc.record(
    { Authorization: fc.oneof(credential, fc.array(credential), hostile) },
    { requiredKeys: [] },
  ),
  fc.dictionary(
    fc.oneof(fc.constantFrom('Authorization', 'AUTHORIZATION', 'Signer-Auth-Id'), fc.string()),
    hostile,
  ),
)
const whole = fc.record(
  {
    headers,
    state,
    authorization: fc.oneof(credential, hostile),
    payload: fc.oneof(hostile, fc.record({ headers, state })),
  },
  { requiredKeys: [] },
)

/** Returns the first input, if any, with an answer that breaks a law; shrunk. */
async function counterexample<T>(inputs: fc.Arbitrary<T>, send: (input: T) => Promise<Reply>) {
  const property = fc.asyncProperty(inputs, async (input) => {
    const laws = broken(await send(input))
    if (laws.length > 0) throw new Error(laws.join('; '))
  })
  const { counterexample: input, errorInstance } = await fc.check(property, {
    seed: testSeed,
    ...effort,
  })
  return input && { input, errorInstance }
}

const good = firstCall({ key: 'sk_live_alice' })

/** Times, fractions and prices like those of real states, and similar values. */
const digits = fc.integer({ min: 1, max: 180 }).map((length) => '7'.repeat(length))
const real = fc.record({
  ...Object.fromEntries(
    Object.entries(firstCall().state).map(([name, value]) => [name, fc.constant(value)]),
  ),
  LastUpdate: fc.oneof(
    fc.date({ noInvalidDate: true }).map((date) => date.toISOString()),
    fc.nat(999_999_999).map((nanos) => `2026-09-14T10:15:3${nanos % 10}.${nanos}+0${nanos % 7}:30`),
    hostile,
  ),
  Balance: fc.oneof(
    fc.tuple(digits, digits).map((parts) => parts.join('/')),
    digits,
    hostile,
  ),
  InitialPricePerUnit: fc.oneof(fc.nat(), fc.maxSafeNat(), hostile),
  InitialPixelsPerUnit: fc.oneof(fc.nat(), fc.maxSafeNat(), hostile),
  Type: fc.constantFrom('live', 'lv2v', 'fixed', ''),
  SequenceNumber: fc.oneof(fc.constant(0), fc.nat(3), fc.maxSafeNat()),
  StateID: fc.oneof(fc.constantFrom('9f86d081', '00000001'), hostile),
})

describe('40: any input', { timeout }, () => {
  it('gets a lawful answer to a good request with a realistic state', async () => {
    // An int64 price, which JSON.parse would round.
    const dear = (body: object) =>
      JSON.stringify(body).replace(
        '"InitialPricePerUnit":0,',
        '"InitialPricePerUnit":9223372036854775807,',
      )
    expect(await counterexample(real, (state) => decide(dear({ ...good, state })))).toBeNull()
  })

  it('gets a lawful answer to a hostile object', async () => {
    expect(await counterexample(whole, (body) => decide(JSON.stringify(body)))).toBeNull()
  })

  it('gets a lawful answer to a good request with a hostile state', async () => {
    expect(
      await counterexample(state, (state) => decide(JSON.stringify({ ...good, state }))),
    ).toBeNull()
  })

  it('gets a lawful answer to any JSON value and to any bytes', async () => {
    expect(await counterexample(fc.json(), decide)).toBeNull()
    const bytes = fc.uint8Array({ maxLength: 2000 })
    expect(await counterexample(bytes, (body) => decide(Buffer.from(body)))).toBeNull()
  })

  it('gets a lawful answer to a good request with a broken byte', async () => {
    const text = Buffer.from(JSON.stringify(good))
    const change = fc.tuple(fc.nat(text.length - 1), fc.integer({ min: 0, max: 255 }))
    const changed = change.map(([at, byte]) =>
      Buffer.concat([text.subarray(0, at), Buffer.of(byte), text.subarray(at + 1)]),
    )
    expect(await counterexample(changed, decide)).toBeNull()
  })
})
