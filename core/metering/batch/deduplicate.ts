import type { RowBuffer } from '../../lib/copy-sql.ts'
import { type Db, isUniqueViolation, savepoint } from '../../lib/sql.ts'
import { type Columns, byKey, compareKeys, digestOf, indexOf, keyAt, keyOf } from './columns.ts'
import * as store from '../ingest/store.ts'

export interface Entered {
  /** Of the places that were proposed, those whose ids are new. */
  readonly fresh: Uint32Array
  /** Records that repeat an earlier one byte by byte. */
  readonly repeats: readonly number[]
  /** Records of an id that stands for other bytes. */
  readonly disputed: readonly number[]
}

/** Tickets whose ids are to be entered. */
export interface Proposal {
  readonly tickets: Columns
  readonly places: Uint32Array
  /** The first of each id, in the order of their keys, like every collector's: of two none waits for the other in a circle. */
  readonly firsts: Uint32Array
  /** The same as COPY takes them. */
  readonly rows: Buffer
}

/** Works out, without the database, what is to be entered. The rows go to `out`. */
export function propose(tickets: Columns, places: Uint32Array, out: RowBuffer): Proposal {
  const sorted = byKey(tickets, places)
  const firsts = sorted.filter(
    (place, i) => i === 0 || compareKeys(tickets, place, sorted[i - 1] ?? 0) !== 0,
  )
  return { tickets, places, firsts, rows: rowsOf({ tickets, firsts }, out) }
}

function rowsOf({ tickets, firsts }: Pick<Proposal, 'tickets' | 'firsts'>, out: RowBuffer): Buffer {
  const start = out.end()
  for (const place of firsts) store.writeEnvelope(out, tickets.ids, keyAt(place))
  return out.slice(start, out.end())
}

export function createEnvelopes() {
  let repeatsExpected = false

  /** True unless ids repeat among themselves, or did so with others in the batch before. */
  const areLikelyNew = ({ places, firsts }: Proposal): boolean =>
    !repeatsExpected && places.length > 0 && firsts.length === places.length

  /** Enters ids that are all new; rejects, the transaction lost, when one is not. */
  async function enterNew(db: Db, { rows }: Proposal): Promise<void> {
    await store.copyEnvelopes(db, rows).catch((error: unknown) => {
      repeatsExpected ||= isUniqueViolation(error)
      throw error
    })
  }

  /** Enters the ids; the first of equal ones stands. What repeats it byte by byte is a repeat, all else disputed. */
  async function enter(db: Db, proposal: Proposal, out: RowBuffer): Promise<Entered> {
    const { places, firsts } = proposal
    const old = firsts.length === 0 ? nothing : await enterAll(db, proposal, out)
    repeatsExpected = old.size > 0
    if (old.size === 0 && firsts.length === places.length)
      return { fresh: places, repeats: [], disputed: [] }
    return sort(proposal, old)
  }

  /**
   * The digests of those that had been entered before. Copying is cheapest (measured: a look at each key first costs
   * as much again), but fails as a whole on a single repeat, and repeats come in swarms: after one they are looked for.
   */
  async function enterAll(
    db: Db,
    { tickets, firsts, rows }: Proposal,
    out: RowBuffer,
  ): Promise<Digests> {
    const old = repeatsExpected
      ? await store.knownEnvelopes(
          db,
          Array.from(firsts, (place) => keyOf(tickets, place)),
        )
      : nothing
    const others =
      old.size === 0 ? firsts : firsts.filter((place) => !old.has(keyOf(tickets, place)))
    if (others.length === 0) return old
    try {
      await savepoint(db, () =>
        store.copyEnvelopes(db, old.size === 0 ? rows : rowsOf({ tickets, firsts: others }, out)),
      )
      return old
    } catch (error) {
      if (!isUniqueViolation(error)) throw error
      const repeats = await store.insertEnvelopes(
        db,
        Array.from(others, (place) => ({
          key: keyOf(tickets, place),
          digest: digestOf(tickets, place),
        })),
      )
      return new Map([...old, ...(await store.knownEnvelopes(db, [...repeats]))])
    }
  }

  return { areLikelyNew, enterNew, enter }
}

type Digests = ReadonlyMap<string, string>

const nothing: Digests = new Map()

function sort({ tickets, places, firsts }: Proposal, old: Digests): Entered {
  const standing = new Map(
    Array.from(firsts, (place) => [
      keyOf(tickets, place),
      { place, digest: digestOf(tickets, place) },
    ]),
  )
  const repeats: number[] = []
  const disputed: number[] = []
  const fresh = places.filter((place) => {
    const key = keyOf(tickets, place)
    const [first, before] = [standing.get(key), old.get(key)]
    if (first?.place === place && before === undefined) return true
    const repeated = digestOf(tickets, place) === (before ?? first?.digest)
    ;(repeated ? repeats : disputed).push(indexOf(tickets, place))
    return false
  })
  return { fresh, repeats, disputed }
}
