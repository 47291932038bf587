import { createHash, hkdfSync } from 'node:crypto'
import { type Reloadable, deriveLive } from '../../lib/settings/reloadable.ts'
import { seal as encrypt, unseal as decrypt } from '../../lib/crypto.ts'

/** Purpose of a sealed value. Each purpose has its own key. */
const purposes = ['signing-key', 'reply', 'cursor', 'webhook-secret', 'pepper', 'mail'] as const
export type SealingPurpose = (typeof purposes)[number]

/** Where a sealed value belongs. It cannot be opened for another place. */
export interface SealedPlace {
  readonly purpose: SealingPurpose
  readonly context: string
}

const version = 1
const idBytes = 6
/** Leading bytes of a sealed value, which identify its key-encryption key. */
const headBytes = 1 + idBytes
const info = (text: string): string => `tollgate ${text}`

interface Kek {
  readonly id: string
  readonly head: Buffer
  readonly byPurpose: ReadonlyMap<SealingPurpose, Buffer>
  /** The key of values sealed before each purpose had its own key. */
  readonly whole: Buffer
}

/** No configured key-encryption key opens the value. */
export class SealError extends Error {}

/**
 * Seals values at rest with AES-256-GCM. `secrets` are the key-encryption keys: the first, current
 * one seals, and all of them open. The key of each purpose is derived from them (HKDF, RFC 5869). A
 * sealed value begins with a version and the id of its key-encryption key. Older values have no id
 * and are opened by trial.
 */
export function createSealing(secrets: Reloadable<readonly string[]>) {
  const keks = deriveLive(secrets, (values) => values.map(kekOf))
  const byId = deriveLive(keks, (all) => new Map(all.map((kek) => [kek.id, kek])))

  function current(): Kek {
    const [first] = keks()
    if (!first) throw new Error('there is no key-encryption key')
    return first
  }

  function seal(plain: Buffer, { purpose, context }: SealedPlace): Buffer {
    const kek = current()
    return Buffer.concat([kek.head, encrypt(plain, keyOf(kek, purpose), context)])
  }

  /** Throws a SealError if the key, the purpose or the context differs, or a byte was changed. */
  function unseal(sealed: Buffer, { purpose, context }: SealedPlace): Buffer {
    const id = keyIdOf(sealed)
    const kek = id === null ? undefined : byId().get(id)
    const plain =
      (kek && tried(sealed.subarray(headBytes), keyOf(kek, purpose), context)) ??
      firstOf(keks(), ({ whole }) => tried(sealed, whole, context))
    if (plain) return plain
    throw new SealError(
      `no configured key opens a sealed ${purpose}${id === null ? '' : `; if it is whole, the key ${id} sealed it`}`,
    )
  }

  /** The id of the configured key with this `head` (hexadecimal); null if no key has it. */
  const idOfHead = (head: string): string | null =>
    keks().find((kek) => kek.head.toString('hex') === head)?.id ?? null

  /** The id of the key that seals, and the head of its values. */
  const currentKey = (): Pick<Kek, 'id' | 'head'> => current()

  return { seal, unseal, idOfHead, currentKey }
}

export type Sealing = ReturnType<typeof createSealing>

function kekOf(secret: string): Kek {
  const derive = (text: string, bytes: number): Buffer =>
    Buffer.from(hkdfSync('sha256', secret, '', info(text), bytes))
  const id = derive('key id', idBytes)
  return {
    id: id.toString('hex'),
    head: Buffer.concat([Buffer.of(version), id]),
    byPurpose: new Map(purposes.map((purpose) => [purpose, derive(`seal ${purpose}`, 32)])),
    whole: createHash('sha256').update(secret).digest(),
  }
}

function keyOf(kek: Kek, purpose: SealingPurpose): Buffer {
  const key = kek.byPurpose.get(purpose)
  if (!key) throw new Error(`there is no key for ${purpose}`)
  return key
}

/** The key id in a sealed value's head; null for a value without a head. */
const keyIdOf = (sealed: Buffer): string | null =>
  sealed.length >= headBytes && sealed[0] === version
    ? sealed.subarray(1, headBytes).toString('hex')
    : null

function tried(sealed: Buffer, key: Buffer, context: string): Buffer | undefined {
  try {
    return decrypt(sealed, key, context)
  } catch {
    return undefined
  }
}

function firstOf<Item, Value>(
  items: readonly Item[],
  find: (item: Item) => Value | undefined,
): Value | undefined {
  for (const item of items) {
    const value = find(item)
    if (value !== undefined) return value
  }
  return undefined
}
