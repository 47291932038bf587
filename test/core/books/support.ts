import { randomUUID } from 'node:crypto'
import { credentials } from '@grpc/grpc-js'
import { expect, vi } from 'vitest'
import { chainInserted } from '../plans/chain-prices.ts'
import { unary } from '../../../core/lib/grpc.ts'
import { serviceTokenHeader } from '../../../proto/headers.ts'
import { operate } from '../../deploy/cli/support.ts'
import { MeteringServiceClient } from '../../../proto/gen/ts-proto/tollgate/metering/v1/metering.ts'
import { eventData } from '../metering/harness.ts'
import {
  type AppOptions,
  type TestApp,
  type TestCore,
  begin,
  day,
  observedRate,
  serviceToken,
  startTestCore,
} from '../support.ts'

export interface BooksWorld extends TestCore {
  readonly app: TestApp
  /** Ingests events, each with these members of `data`. Returns the numbers of results. */
  ingest(
    ...events: readonly Event[]
  ): Promise<{ tickets: number; duplicates: number; quarantined: number }>
  ingestBytes(
    ...envelopes: readonly Buffer[]
  ): Promise<{ tickets: number; duplicates: number; quarantined: number }>
  rows(text: string, values?: readonly unknown[]): Promise<Record<string, string | null>[]>
  /** Runs SQL that the service itself rejects. */
  damage(text: string): Promise<void>
  /** Rebuilds the chain of versions, bundles and cuts after a test has written them. */
  chainPrices(): Promise<void>
}

export type Event = Readonly<Record<string, unknown>>

/**
 * Starts a core with an app and a Starter plan that includes 5 USD. Points the command line at it.
 */
export async function startBooks(
  env: Readonly<Record<string, string>> = {},
  options: AppOptions = {},
): Promise<BooksWorld> {
  const core = await startTestCore(env)
  vi.stubEnv('CORE_TARGET', core.core.target)
  vi.stubEnv('CORE_TOKEN', serviceToken)
  const app = await core.newApp(options)
  const client = new MeteringServiceClient(core.core.target, credentials.createInsecure())
  const send = unary(client.ingestEvents.bind(client))

  const ingestBytes = (...envelopes: readonly Buffer[]) =>
    send(
      { envelopes: [...envelopes] },
      { deadlineMs: 15_000, headers: { [serviceTokenHeader]: serviceToken } },
    )

  const ingest = (...events: readonly Event[]) =>
    ingestBytes(...events.map((data) => eventOf({ auth_id: `${app.clientId}:ada`, ...data })))

  const rows = async (
    text: string,
    values: readonly unknown[] = [],
  ): Promise<Record<string, string | null>[]> => {
    const { rows: found } = await core.sql.query<Record<string, unknown>>(text, [...values])
    return found.map((row) =>
      Object.fromEntries(Object.entries(row).map(([name, value]) => [name, textOf(value)])),
    )
  }

  /**
   * Changes rows without triggers. Retries after a deadlock, because it locks rows in any order.
   */
  async function damage(text: string, tries = 10): Promise<void> {
    await changeOnce(text).catch((error: unknown) => {
      if (tries === 0 || !(error instanceof Error && 'code' in error && error.code === '40P01'))
        throw error
      return damage(text, tries - 1)
    })
  }

  async function changeOnce(text: string): Promise<void> {
    const connection = await core.sql.connect()
    try {
      await connection.query('begin; set local session_replication_role = replica')
      await connection.query(text)
    } finally {
      // After an error, commit rolls back.
      await connection.query('commit')
      connection.release()
    }
  }

  async function chainPrices(): Promise<void> {
    await damage('delete from price_chain; delete from price_heads')
    await chainInserted(core.sql)
  }

  async function stop(): Promise<void> {
    vi.unstubAllEnvs()
    client.close()
    await core.stop()
  }

  return { ...core, app, ingest, ingestBytes, rows, damage, chainPrices, stop }
}

const textOf = (value: unknown): string | null =>
  value === null || value === undefined
    ? null
    : value instanceof Date
      ? value.toISOString()
      : String(value)

/**
 * Encodes a signed-ticket event at the start of the tests' time, with other `data` members and an
 * id.
 */
export const eventOf = ({ id = randomUUID(), ...data }: Event): Buffer =>
  Buffer.from(
    JSON.stringify({
      id,
      type: 'create_signed_ticket',
      timestamp: String(begin.getTime()),
      gateway: '',
      data: { ...eventData, current_time: begin.toISOString(), ...data },
    }),
  )

/** Starts a core to build the roots of all days before today, then stops it. */
export async function buildRoots(
  world: Pick<BooksWorld, 'startAnother' | 'rows' | 'clock'>,
): Promise<void> {
  const { core } = await world.startAnother(observedRate)
  await vi.waitFor(
    async () => {
      const [waiting] = await world.rows(
        `select count(*) filter (where built_at is null) + (select count(*) from test_days where built_at is null) as days,
                max(day)::text as last
         from receipt_days`,
      )
      const yesterday = new Date(world.clock.now().getTime() - day).toISOString().slice(0, 10)
      expect(waiting).toMatchObject({ days: '0', last: yesterday })
    },
    { timeout: 20_000, interval: 50 },
  )
  await core.stop()
}

let last: Promise<unknown> = Promise.resolve()

/**
 * Runs a command. Returns its output and exit code. Commands run one at a time, because they share
 * standard output.
 */
export function tollgate(...argv: string[]): Promise<{ code: number; text: string }> {
  const run = last.then(() => operate(...argv))
  last = run.catch(() => {})
  return run
}
