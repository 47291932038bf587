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

interface Entering {
  /** For the rows. */
  readonly out: RowBuffer
  /** Called, perhaps, while Postgres is at work. Must not throw. */
  readonly meanwhile: () => void
}

export function createEnvelopes() {
  let repeatsExpected = false

  /** Enters the ids; the first of equal ones stands. What repeats it byte by byte is a repeat, all else disputed. */
  async function enter(db: Db, { known, ...entering }: Entering & { known: readonly Known[] }): Promise<Entered> {
    const firsts = new Map<string, Entry>()
    for (const { entry } of known) {
      if (!firsts.has(entry.key)) firsts.set(entry.key, entry)
    }
    const old = firsts.size === 0 ? nothing : await enterAll(db, firsts, entering)
    repeatsExpected = old.size > 0
    return sort(known, { firsts, old })
  }

  /**
   * The digests of those that had been entered before. Copying is cheapest (measured: a look at each key first costs
   * as much again), but fails as a whole on a single repeat, and repeats come in swarms: after one they are looked for.
   */
  async function enterAll(db: Db, firsts: Firsts, { out, meanwhile }: Entering): Promise<Digests> {
    const old = repeatsExpected ? await store.knownEnvelopes(db, [...firsts.keys()]) : nothing
    // In the order of their keys, like every collector's: of two that meet none waits for the other in a circle.
    const others = [...firsts.values()].filter(({ key }) => !old.has(key)).sort((a, b) => (a.key < b.key ? -1 : 1))
    if (others.length === 0) return old
    try {
      await savepoint(db, async () => {
        const copying = store.copyEnvelopes(db, out, others)
        await copying.sent
        meanwhile()
        await copying.done
      })
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
