import { type KeyObject, argon2, createSecretKey, randomBytes, timingSafeEqual } from 'node:crypto'
import { promisify } from 'node:util'
import { pepperedHash } from '../lib/crypto.ts'
import { type Reloadable, currentValue, deriveLive } from '../lib/settings/reloadable.ts'

export interface Peppers {
  /** Id of the pepper that new secrets are stored with. */
  readonly current: string
  readonly byId: ReadonlyMap<string, Buffer>
}

/**
 * Adds peppers of restored backups, with which secrets may still be stored. Those of the settings
 * come first.
 */
export const withRestored = (
  peppers: Reloadable<Peppers>,
  restored: readonly { readonly id: string; readonly value: Buffer }[],
): Reloadable<Peppers> =>
  deriveLive(peppers, ({ current, byId }) => ({
    current,
    byId: new Map([...restored.map(({ id, value }) => [id, value] as const), ...byId]),
  }))

/**
 * Hashes client secrets and keys for storage and look-up: HMAC-SHA-256 with an identified pepper
 * (decision 7).
 */
export function createSecrets(peppers: Reloadable<Peppers>) {
  // Create the key objects once. Given bytes, node creates one per hash, which takes ten times as
  // long as the hash.
  const keys = deriveLive(
    peppers,
    ({ byId }) => new Map([...byId].map(([id, bytes]) => [id, createSecretKey(bytes)])),
  )

  function pepper(id: string): KeyObject {
    const key = keys().get(id)
    if (!key)
      throw new Error(
        `no pepper with the id ${id}; keep old peppers in SECRET_PEPPERS until their secrets are gone`,
      )
    return key
  }

  /** The stored form of a new secret. */
  function store(secret: string) {
    const pepperId = currentValue(peppers).current
    return { hash: pepperedHash(secret, pepper(pepperId)), pepperId }
  }

  /** Every form in which an existing secret may be stored: one per pepper. */
  const candidates = (secret: string): Buffer[] =>
    [...keys().values()].map((value) => pepperedHash(secret, value))

  /** Compares in constant time. */
  function matches(secret: string, stored: { hash: Buffer; pepperId: string }): boolean {
    const value = keys().get(stored.pepperId)
    return value !== undefined && timingSafeEqual(pepperedHash(secret, value), stored.hash)
  }

  return { store, candidates, matches }
}

export type Secrets = ReturnType<typeof createSecrets>

// OWASP's second choice for argon2id: 19 MiB, 2 passes, 1 lane.
const argon = { memory: 19_456, passes: 2, parallelism: 1, tagLength: 32 }
const argon2Async = promisify(argon2)

/** A password's stored form in PHC notation: argon2id with its parameters and salt. */
export async function hashPassword(password: string): Promise<string> {
  const nonce = randomBytes(16)
  const tag = await argon2Async('argon2id', { ...argon, message: password, nonce })
  const text = (bytes: Buffer): string => bytes.toString('base64').replace(/=+$/, '')
  return `$argon2id$v=19$m=${argon.memory},t=${argon.passes},p=${argon.parallelism}$${text(nonce)}$${text(tag)}`
}

const phc =
  /^\$argon2id\$v=19\$m=(\d{1,7}),t=(\d{1,2}),p=(\d{1,2})\$([A-Za-z0-9+/]{22,64})\$([A-Za-z0-9+/]{43})$/

/**
 * Whether the password matches the stored form. If that is missing or unusable, returns false after
 * the same amount of work.
 */
export async function passwordMatches(password: string, stored: string | null): Promise<boolean> {
  const [
    ,
    memory = argon.memory,
    passes = argon.passes,
    parallelism = argon.parallelism,
    salt,
    tag,
  ] = phc.exec(stored ?? '') ?? []
  const nonce = salt === undefined ? randomBytes(16) : Buffer.from(salt, 'base64')
  const computed = await argon2Async('argon2id', {
    memory: Number(memory),
    passes: Number(passes),
    parallelism: Number(parallelism),
    tagLength: 32,
    message: password,
    nonce,
  })
  return tag !== undefined && timingSafeEqual(computed, Buffer.from(tag, 'base64'))
}
