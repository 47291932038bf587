import { randomUUID } from 'node:crypto'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll } from 'vitest'
import { day, observedRate } from '../support.ts'
import { compareListed } from '../../../gateway/web/receipts/listed.ts'
import { checkReceipt } from '../../../proto/receipts/check.ts'
import { readKeys, readReceipt } from '../../../proto/receipts/document.ts'
import { type BooksWorld, buildRoots, startBooks, tollgate } from './support.ts'

/** A deployment with rates, for tests of receipts and roots. */

export let world: BooksWorld
export let folder: string

/** Registers the hooks of a test file. Files of a worker share this module, so each calls it. */
export function setUpReceipts(): void {
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'tollgate-receipts-'))
    world = await startBooks(observedRate)
  })
  afterAll(async () => {
    await world.stop()
    await rm(folder, { recursive: true, force: true })
  })
}

export const file = (name: string): string => join(folder, name)

/** Advances the clock by a day and builds the roots of the previous day. Returns that day. */
export async function nextDay(): Promise<string> {
  const ended = world.clock.now().toISOString().slice(0, 10)
  world.clock.advance(day)
  await buildRoots(world)
  return ended
}

export async function rateAt(instant: Date): Promise<void> {
  await world.sql.query(
    `insert into rates (usd_attos_per_eth, source, observed_at, created_at) values (3111.1 * 10::numeric ^ 18, 'test', $1, $1)`,
    [instant],
  )
}

/** Books tickets of one user, signed now. Returns their event ids. */
export async function book(
  count: number,
  more: Readonly<Record<string, unknown>> = {},
): Promise<string[]> {
  const ids = Array.from({ length: count }, () => randomUUID())
  const now = world.clock.now().getTime()
  const current_time = new Date(now).toISOString()
  await rateAt(world.clock.now())
  await world.ingest(
    ...ids.map((id, i) => ({
      id,
      current_time,
      session_id: id,
      sequence_number: i,
      computed_fee: String(8_420_000_000_001n + BigInt(i)),
      ...more,
    })),
  )
  return ids
}

export const get = (id: string, name: string) =>
  tollgate('receipt', 'get', id, '--out', file(name), '--jwks', file('keys.json'))
export const verify = (name: string, ...more: string[]) =>
  tollgate('receipt', 'verify', file(name), '--jwks', file('keys.json'), ...more)

/**
 * Checks a file as the dashboard does in the browser, which finds `listed` as the service's root of
 * the day. Returns the names of the checks that failed or could not be made.
 */
export async function failuresInBrowser(
  name: string,
  { keys = 'keys.json', listed = null }: { keys?: string; listed?: string | null } = {},
): Promise<string[]> {
  const [text, trusted] = await Promise.all([readFile(file(name), 'utf8'), json(keys)])
  const { checks } = await checkReceipt(readReceipt(text), {
    keys: readKeys(JSON.stringify(trusted)),
    issuer: null,
    roots: { areNeeded: false, compare: compareListed(async () => listed) },
  })
  return checks
    .filter(({ isRight, isNeeded = false }) => isRight === false || isNeeded)
    .map((check) => check.name)
}

/** Decodes the claims of a receipt. */
export const claimsOf = ({ receipt }: Record<string, unknown>): unknown =>
  JSON.parse(Buffer.from(String(receipt).split('.')[1] ?? '', 'base64url').toString())

export const poolOptions = { max: 2, name: 'receipts-test', statementTimeoutMs: 20_000 }
export const json = async (name: string): Promise<Record<string, unknown>> =>
  JSON.parse(await readFile(file(name), 'utf8'))
export const put = (name: string, value: unknown) => writeFile(file(name), JSON.stringify(value))
