import type { RowBuffer } from '../lib/copy-sql.ts'
import { type Db, isUniqueViolation, savepoint } from '../lib/sql.ts'
import type { Entry } from './batch.ts'
import * as store from './store.ts'
import type { Subject } from './types.ts'

/** A ticket of a known user. */
export interface Known { readonly entry: Entry; readonly subject: Subject }

export interface Entered {
  readonly fresh: readonly Known[]
  /** Records that repeat an earlier one byte by byte. */
  readonly repeats: readonly number[]
  /** Records of an id that stands for other bytes. */
  readonly disputed: readonly number[]
}

/** Tickets whose ids are to be entered. */
export interface Proposal {
  readonly known: readonly Known[]
  /** In the order of their keys, like every collector's: of two that meet none waits for the other in a circle. */
  readonly ordered: readonly Entry[]
  /** As COPY takes them. */
  readonly rows: Buffer
}

/** Works out, without the database, what is to be entered: the first of each id. The rows go to `out`. */
export function propose(known: readonly Known[], out: RowBuffer): Proposal {
  const sorted = byKey(known.map(({ entry }) => entry))
  const ordered = sorted.filter(({ key }, i) => key !== sorted[i - 1]?.key)
  return { known, ordered, rows: store.envelopeRows(out, ordered) }
}

export function createEnvelopes() {
  let repeatsExpected = false

  /** Enters the ids; the first of equal ones stands. What repeats it byte by byte is a repeat, all else disputed. */
  async function enter(db: Db, proposal: Proposal, out: RowBuffer): Promise<Entered> {
    const { known, ordered } = proposal
    const old = ordered.length === 0 ? nothing : await enterAll(db, proposal, out)
    repeatsExpected = old.size > 0
    if (old.size === 0 && ordered.length === known.length) return { fresh: known, repeats: [], disputed: [] }
    return sort(known, { firsts: new Map(ordered.map((entry) => [entry.key, entry])), old })
  }

  /**
   * The digests of those that had been entered before. Copying is cheapest (measured: a look at each key first costs
   * as much again), but fails as a whole on a single repeat, and repeats come in swarms: after one they are looked for.
   */
  async function enterAll(db: Db, { ordered, rows }: Proposal, out: RowBuffer): Promise<Digests> {
    const old = repeatsExpected ? await store.knownEnvelopes(db, ordered.map(({ key }) => key)) : nothing
    const others = old.size === 0 ? ordered : ordered.filter(({ key }) => !old.has(key))
    if (others.length === 0) return old
    try {
      await savepoint(db, () => store.copyEnvelopes(db, old.size === 0 ? rows : store.envelopeRows(out, others)))
      return old
    } catch (error) {
      if (!isUniqueViolation(error)) throw error
      const repeats = await store.insertEnvelopes(db, others)
      return new Map([...old, ...await store.knownEnvelopes(db, [...repeats])])
    }
  }

  return { enter }
}

type Firsts = ReadonlyMap<string, Entry>
type Digests = ReadonlyMap<string, string>

const nothing: Digests = new Map()

function sort(known: readonly Known[], { firsts, old }: { firsts: Firsts; old: Digests }): Entered {
  const fresh: Known[] = []
  const repeats: number[] = []
  const disputed: number[] = []
  for (const ticket of known) {
    const { entry } = ticket
    const first = firsts.get(entry.key)
    const standing = old.get(entry.key) ?? first?.digest
    if (first === entry && !old.has(entry.key)) fresh.push(ticket)
    else if (standing === entry.digest) repeats.push(entry.index)
    else disputed.push(entry.index)
  }
  return { fresh, repeats, disputed }
}

// 39 bits of a key and 14 of its place are a number that a double holds, and numbers sort many times faster than texts.
const places = 2 ** 14

/** In the order of their keys, those of one key in the order of the records. */
function byKey(entries: readonly Entry[]): Entry[] {
  const inOrder = (a: Entry, b: Entry): number => (a.key < b.key ? -1 : a.key > b.key ? 1 : a.index - b.index)
  if (entries.length > places) return entries.toSorted(inOrder)
  const numbers = Float64Array.from(entries, ({ key }, i) => startOf(key) * places + i).sort()
  const sorted = Array.from(numbers, (number) => entries[number % places]).filter((entry) => entry !== undefined)
  for (let from = 0; from < sorted.length;) {
    const start = Math.floor((numbers[from] ?? 0) / places)
    let to = from + 1
    while (to < sorted.length && Math.floor((numbers[to] ?? 0) / places) === start) to += 1
    if (to - from > 1) sorted.splice(from, to - from, ...sorted.slice(from, to).sort(inOrder))
    from = to
  }
  return sorted
}

const startOf = (key: string): number =>
  ((key.charCodeAt(0) * 256 + key.charCodeAt(1)) * 256 + key.charCodeAt(2)) * 2 ** 15
  + key.charCodeAt(3) * 2 ** 7 + (key.charCodeAt(4) >> 1)
