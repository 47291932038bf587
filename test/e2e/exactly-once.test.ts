import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest'
import { type Allowances, createAllowances } from '../support/usage/allowances.ts'
import { faultsOf } from '../support/deployment/faults.ts'
import {
  type Books,
  type Delivered,
  type GrantTerms,
  type Window,
  countDeliveries,
  keepBooks,
} from '../support/usage/books.ts'
import {
  type Deployment,
  type TestApp,
  createApp,
  startDeployment,
} from '../support/deployment/deployment.ts'
import { type Story, type Subject, deliveries } from '../support/usage/events.ts'
import {
  type Streams,
  balanceLines,
  derivedFaults,
  differing,
  hourLines,
  ledgerFaults,
  ownerLines,
  photograph,
  quarantineLines,
  readStreams,
  ticketLines,
} from '../support/usage/database-lines.ts'
import { createRandom } from '../support/random.ts'
import { type Observation, createRates } from '../support/usage/rates.ts'
import { expectBalance, expectUsage } from '../support/usage/figures.ts'
import { endMinute, readSize, testSeed } from '../support/run/sizes.ts'

const minute = 60_000_000
// TEST_SEED=`<seed>@<minute of the newest event>` repeats a run exactly.
const end = (endMinute ?? Math.floor(Date.now() / 60_000) - 1) * minute
const start = end - 4 * 60 * minute
const onKafka = inject('parts').kafkaBrokers !== null
const count = readSize('TEST_EVENTS')
const name = `TEST_SEED=${testSeed}@${end / minute}`
process.stdout.write(`exactly-once: ${name}, ${count} events\n`)

const random = createRandom(testSeed + 2)
const window: Window = { from: start + 37 * minute + 123_000, until: end - 71 * minute - 456_000 }
const customer = 'customer@example.com'
let service: Deployment
let apps: TestApp[]
let allowances: Allowances
let story: Story
let books: Books
let delivered: Delivered

beforeAll(async () => {
  service = await startDeployment()
  apps = []
  // Enough for most users, too little for most, and nothing.
  for (const starter of [5_000_000n, 300_000n, 0n])
    apps.push(await createApp(service, starter, starter === 0n ? customer : undefined))
  allowances = createAllowances(apps)
  const observations = createRates(createRandom(testSeed + 3), { start, end })
  story = { seed: testSeed, count, subjects: subjectsOf(apps), observations, start, end }
  books = keepBooks(story, window)
  delivered = countDeliveries(story)
  await observe(observations.filter(({ late }) => !late))
}, 240_000)
afterAll(() => service?.stop(), 60_000)

/** Returns 1,000 users, with names as integrators choose them. */
function subjectsOf(of: readonly TestApp[]): Subject[] {
  return Array.from({ length: 1_000 }, (_, i) => {
    const app = of[i % 10 < 5 ? 0 : i % 10 < 8 ? 1 : 2]
    const odd = [`team:${i}`, `Zoë & Çağ #${i}`, `${i}/?%2F`][(i % 50) - 7]
    return {
      clientId: app?.clientId ?? '',
      externalUserId: odd ?? `user-${i}`,
      heavy: i % 20 === 0,
    }
  })
}

async function observe(observations: readonly Observation[]): Promise<void> {
  for (const { at, attosPerEth } of observations) {
    await service.pool.query(
      `insert into rates (usd_attos_per_eth, source, observed_at)
       values ($1, 'test', timestamptz 'epoch' + $2::bigint * interval '1 microsecond')`,
      [attosPerEth, at],
    )
  }
}

const millionDollars: GrantTerms = { micros: 10n ** 12n, featureKey: null }
const wealthy = (): Subject[] => story.subjects.filter(({ heavy }, i) => heavy && i % 40 === 0)

async function grantAllowances(): Promise<void> {
  const [bound, ...others] = story.subjects
    .filter((subject) => allowances.appOf(subject).starterMicros === 0n)
    .slice(0, 20)
  if (!bound) throw new Error('nobody to bind a grant to')
  for (const subject of [bound, ...others, ...wealthy()]) await allowances.provision(subject)
  for (const subject of wealthy()) await allowances.grant(subject, millionDollars)
  for (const subject of others)
    await allowances.grant(subject, {
      micros: 1n + BigInt(random.below(2_000_000)),
      featureKey: null,
    })
  await allowances.grant(bound, { micros: 150_001n, featureKey: 'live-video-to-video' })
  await allowances.grant(bound, { micros: 70_003n, featureKey: null })
}

const consumedOf = (
  counts: Pick<Streams, 'tickets' | 'duplicates' | 'ignored' | 'quarantined'>,
): bigint => counts.tickets + counts.duplicates + counts.ignored + counts.quarantined
const consumed = async (): Promise<bigint> => consumedOf(await readStreams(service.pool))

async function until(what: string, isSo: () => Promise<boolean>): Promise<void> {
  // The database or core may be unavailable.
  for (const stop = Date.now() + 150_000; Date.now() < stop; await sleep(25))
    if (await isSo().catch(() => false)) return
  throw new Error(`${what}: not in time; ${await consumed()} of ${delivered.all} consumed`)
}

/**
 * Injects faults at random points of the stream. A credit granted at that moment must be granted
 * once.
 */
async function injectFaults(): Promise<void> {
  const all = faultsOf(service, random)
  for (const [turn, fault] of all.entries()) {
    const share = (turn + 0.2 + random.below(700) / 1000) / all.length
    const point = BigInt(Math.floor(Number(delivered.all) * share * 0.9))
    await until(`the crash at ${point}`, async () => (await consumed()) >= point)
    // At the last fault, tickets that preceded their rate are being priced while others still
    // arrive.
    if (turn === all.length - 1) await rememberRates()
    await sleep(random.below(300))
    const granting = allowances.grant(random.pick(wealthy()), {
      micros: millionDollars.micros + BigInt(turn),
      featureKey: null,
    })
    granting.catch(() => {})
    await sleep(random.below(8))
    await fault()
    await granting
  }
}

async function rememberRates(): Promise<void> {
  await observe(story.observations.filter(({ late }) => late))
  await wakePricing()
}

/**
 * Records a current rate. It prices none of the tickets, but makes the collector price those that
 * it can.
 */
const wakePricing = () =>
  service.operator.metering.recordRate({ usdPerEth: '3000', source: 'test' })

/** Waits until every event is consumed and every ticket is priced. */
async function settled(target: bigint): Promise<void> {
  await until('the whole stream', async () => (await consumed()) >= target)
  await wakePricing()
  await until('the last price', async () => {
    const { unpricedTickets, streams } = await service.operator.metering.getMeteringStatus({})
    const sum = streams.reduce(
      (all, { tickets, duplicates, ignored, quarantined }) =>
        all + BigInt(tickets) + BigInt(duplicates) + BigInt(ignored) + BigInt(quarantined),
      0n,
    )
    return unpricedTickets === '0' && sum >= target
  })
}

describe(`events, ${name}`, () => {
  it('are consumed despite a crash of every process', async () => {
    await grantAllowances()
    const injecting = injectFaults()
    injecting.catch(() => {})
    await service.line.deliver(deliveries(story))
    await injecting
    await settled(onKafka ? await service.line.stored() : delivered.all)
    expect(service.core.crashes()).toBe(onKafka ? 2 : 3)
    expect(service.collectors.reduce((sum, one) => sum + one.crashes(), 0)).toBe(onKafka ? 4 : 0)
  }, 300_000)

  it('become one ticket each, priced to the atto-dollar at its own time', async () => {
    const expected = new Map(
      [...books.users]
        .filter(([, { count }]) => count > 0n)
        .map(([key, { count, fee, cost, fingerprint }]) => [
          key,
          `${count} ${fee} ${cost} ${fingerprint}`,
        ]),
    )
    expect(differing(expected, await ticketLines(service.pool))).toEqual([])
  }, 60_000)

  it('match the sums of sessions, and the envelopes match the tickets', async () => {
    expect(await derivedFaults(service.pool)).toEqual([])
  }, 60_000)

  it('match the hourly sums', async () => {
    const expected = new Map(
      [...books.hours].map(([key, { count, fee, cost, nanos, pixels }]) => [
        key,
        `${count} 0 ${fee} ${cost} ${nanos} ${pixels}`,
      ]),
    )
    expect(differing(expected, await hourLines(service.pool))).toEqual([])
  }, 60_000)

  it('burn allowances and leave overage, and each ledger folds to its balance', async () => {
    const accounts = new Map(
      allowances.known(books).map((key) => [key, allowances.accountOf(books, key)]),
    )
    const expected = new Map(
      [...accounts].map(([key, { granted, consumed, overage, balance, left }]) => [
        key,
        `${granted} ${consumed} ${overage} ${balance} 0 [${left.join(' ')}]`,
      ]),
    )
    expect(differing(expected, await balanceLines(service.pool))).toEqual([])
    expect(await ledgerFaults(service.pool)).toEqual([])
    const overdrawn = [...accounts.values()].filter(({ overage }) => overage > 0n).length
    expect(overdrawn).toBeGreaterThan(50)
    expect(accounts.size - overdrawn).toBeGreaterThan(50)
  }, 60_000)

  it("charge the owner of a customer's app once for each ticket, at network price", async () => {
    const clientId = apps[2]?.clientId ?? ''
    const users = [...books.users.values()].filter(({ subject }) => subject.clientId === clientId)
    const [cost, count] = users.reduce(
      ([costs, counts], user) => [costs + user.cost, counts + user.count],
      [0n, 0n],
    )
    expect(count).toBeGreaterThan(0n)
    expect(await ownerLines(service.pool)).toEqual(new Map([[clientId, `${cost} ${count}`]]))
  })

  it('are all in the counters or in quarantine', async () => {
    const streams = await readStreams(service.pool)
    const { uncertain } = service.line
    expect(streams).toMatchObject({
      tickets: books.tickets,
      missing: 0n,
      offsets: consumedOf(streams),
    })
    expect(await service.line.stored()).toBe(onKafka ? streams.offsets : 0n)
    expect(streams.offsets).toBeGreaterThanOrEqual(delivered.all)
    expect(streams.offsets).toBeLessThanOrEqual(delivered.all + uncertain)
    const exact = {
      duplicates: delivered.tickets - books.tickets,
      ignored: delivered.ignored,
      quarantined: delivered.unusable,
    }
    expect(streams).toMatchObject(uncertain === 0n ? exact : {})
    expect(differing(quarantined(1n), await inQuarantine())).toEqual([])
  }, 60_000)

  it('appear in the REST API with one rounding', async () => {
    expect.hasAssertions()
    for (const app of apps) await expectUsage(app, books, window)
    for (const key of [...allowances.known(books).slice(0, 40), ...allowances.favoured()]) {
      const subject = books.users.get(key)?.subject
      if (subject)
        await expectBalance(allowances.appOf(subject), subject, allowances.accountOf(books, key))
    }
  }, 60_000)

  it('change nothing when they are all delivered again', async () => {
    const [before, tables, reasons] = [
      await readStreams(service.pool),
      await photograph(service.pool),
      await quarantineLines(service.pool),
    ]
    const again = await (onKafka ? collectFromTheBeginning(before) : deliverAgain(before))
    const repeated = {
      ...again.streams,
      tickets: 0n,
      duplicates: again.streams.duplicates + again.streams.tickets,
    }
    expect(await readStreams(service.pool)).toEqual(sumOf(again.unchanged, repeated))
    expect(differing(tables, await photograph(service.pool))).toEqual([])
    expect([...(await quarantineLines(service.pool)).keys()].toSorted()).toEqual(
      [...reasons.keys()].toSorted(),
    )
    expect(differing(quarantined(2n), await inQuarantine())).toEqual([])
  }, 200_000)

  it('leave no error in the logs', () => {
    const processes = [service.core, service.sidecar, service.gateway, ...service.collectors]
    // Requests during a database outage get UNAVAILABLE. The rates of the story are old.
    const expected = ['"reason":"UNAVAILABLE"', 'no ETH rate is usable']
    const unexpected = processes
      .flatMap(({ errors }) => errors)
      .filter((line) => !expected.some((text) => line.includes(text)))
    expect(unexpected).toEqual([])
  })
})

interface Repetition {
  /**
   * Counters that stay the same; `streams` are those that grow when every event is delivered again.
   */
  readonly unchanged: Streams
  readonly streams: Streams
}

const noStreams: Streams = {
  tickets: 0n,
  duplicates: 0n,
  ignored: 0n,
  quarantined: 0n,
  missing: 0n,
  offsets: 0n,
}

function sumOf(a: Streams, b: Streams): Streams {
  return {
    tickets: a.tickets + b.tickets,
    duplicates: a.duplicates + b.duplicates,
    ignored: a.ignored + b.ignored,
    quarantined: a.quarantined + b.quarantined,
    missing: a.missing + b.missing,
    offsets: a.offsets + b.offsets,
  }
}

/** Collects the topic again, in a group without offsets. */
async function collectFromTheBeginning(before: Streams): Promise<Repetition> {
  await service.regroup(async () => void (await service.pool.query('delete from stream_offsets')))
  await settled(before.offsets)
  return { unchanged: noStreams, streams: before }
}

/** Pushes every event once more. */
async function deliverAgain(before: Streams): Promise<Repetition> {
  const { uncertain } = service.line
  await service.line.deliver(deliveries(story))
  await settled(before.offsets + delivered.all)
  expect(service.line.uncertain).toBe(uncertain)
  const { all, tickets, ignored, unusable } = delivered
  return {
    unchanged: before,
    streams: { tickets, duplicates: 0n, ignored, quarantined: unusable, missing: 0n, offsets: all },
  }
}

// After a retry without an acknowledgement an event may be stored twice, so its number of
// deliveries is not compared.
const quarantined = (times: bigint): Map<string, string> =>
  new Map(
    [...delivered.reasons].map(([reason, { events, deliveries }]) => [
      reason,
      service.line.uncertain > 0n || !onKafka ? String(events) : `${events} ${deliveries * times}`,
    ]),
  )

async function inQuarantine(): Promise<Map<string, string>> {
  const lines = await quarantineLines(service.pool)
  const exact = onKafka && service.line.uncertain === 0n
  return new Map(
    [...lines].map(([reason, line]) => [reason, exact ? line : (line.split(' ')[0] ?? '')]),
  )
}
