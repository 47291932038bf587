import { chmod, mkdir, readFile, rename, rm, writeFile } from 'node:fs/promises'
import { dirname, join, resolve } from 'node:path'
import { newSecret } from '../../core/lib/crypto.ts'
import type { Env } from '../../core/lib/env.ts'

/** The folder of the all-in-one process: its data, its secrets and the quickstart file. */
export const resolveDataDir = (env: Env): string =>
  resolve(env['TOLLGATE_DATA_DIR']?.trim() || '.tollgate')

export const quickstartPath = (dataDir: string): string => join(dataDir, 'quickstart.json')
const secretsPath = (dataDir: string): string => join(dataDir, 'secrets.json')

/** Everything a script needs to use a running all-in-one service. */
export interface Quickstart {
  readonly platformUrl: string
  readonly builderUrl: string
  /** The builder API's edge, if EDGE_PORT is set. */
  readonly edgeUrl?: string
  readonly sidecarUrl: string
  readonly adminUrl: string
  readonly issuer: string
  readonly coreTarget: string
  readonly clientId: string
  readonly m2mClientId: string
  readonly m2mClientSecret: string
  readonly webhookSecret: string
  readonly ownerEmail: string
  readonly ownerPassword: string
  /** `embedded`: only this folder uses the database. `external`: other deployments may share it. */
  readonly database: 'embedded' | 'external'
}

const generated = ['CORE_TOKEN', 'KEY_ENCRYPTION_KEY', 'SECRET_PEPPERS', 'WEBHOOK_SECRET'] as const
export type Secrets = Readonly<Record<(typeof generated)[number], string>>

/** Creates the folder. Rejects with one clear line when it cannot be written. */
export async function openDataDir(dataDir: string): Promise<void> {
  try {
    await makeFolder(dataDir)
    // More than a byte, because a full disk may still take an empty file.
    await writeFile(join(dataDir, '.writable'), Buffer.alloc(64 * 1024))
    await rm(join(dataDir, '.writable'))
  } catch (error) {
    const why = error instanceof Error && 'code' in error ? String(error.code) : 'unknown error'
    const hint = ['ENOSPC', 'EDQUOT'].includes(why)
      ? 'free space, or set TOLLGATE_DATA_DIR to a folder on another disk'
      : 'set TOLLGATE_DATA_DIR to a folder that this user may write'
    throw new Error(`cannot write to ${dataDir} (${why}); ${hint}`, { cause: error })
  }
}

// Creates one folder at a time: Node's recursive mkdir never returns where the parent cannot exist
// (/proc).
async function makeFolder(path: string): Promise<void> {
  const make = (): Promise<void> =>
    mkdir(path, { mode: 0o711 }).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== 'EEXIST') throw error
    })
  await make().catch(async (error: NodeJS.ErrnoException) => {
    if (error.code !== 'ENOENT' || dirname(path) === path) throw error
    await makeFolder(dirname(path))
    await make()
  })
}

/** Creates secrets for a new deployment. */
export const newSecrets = (): Secrets => ({
  CORE_TOKEN: newSecret(''),
  KEY_ENCRYPTION_KEY: newSecret(''),
  SECRET_PEPPERS: `p1:${newSecret('')}`,
  WEBHOOK_SECRET: newSecret('whsec_'),
})

/** Loads the secrets of this deployment: generated once and stored in `secrets.json`, mode 0600. */
export async function loadSecrets(dataDir: string): Promise<Secrets> {
  const stored = await readJson(secretsPath(dataDir))
  const fresh = newSecrets()
  const secrets = {
    CORE_TOKEN: textOf(stored, 'CORE_TOKEN') ?? fresh.CORE_TOKEN,
    KEY_ENCRYPTION_KEY: textOf(stored, 'KEY_ENCRYPTION_KEY') ?? fresh.KEY_ENCRYPTION_KEY,
    SECRET_PEPPERS: textOf(stored, 'SECRET_PEPPERS') ?? fresh.SECRET_PEPPERS,
    WEBHOOK_SECRET: textOf(stored, 'WEBHOOK_SECRET') ?? fresh.WEBHOOK_SECRET,
  }
  if (generated.some((name) => textOf(stored, name) === undefined))
    await writePrivate(secretsPath(dataDir), secrets)
  return secrets
}

/** The stored secrets of this folder; none before its first start. */
export async function findSecrets(dataDir: string): Promise<Partial<Secrets>> {
  const stored = await readJson(secretsPath(dataDir))
  return Object.fromEntries(
    generated.flatMap((name) => {
      const value = textOf(stored, name)
      return value === undefined ? [] : [[name, value]]
    }),
  )
}

/** The token for commands to the core of this folder; undefined before its first start. */
export async function findServiceToken(dataDir: string): Promise<string | undefined> {
  return textOf(await readJson(secretsPath(dataDir)), 'CORE_TOKEN')
}

const quickstartFields = [
  'platformUrl',
  'builderUrl',
  'sidecarUrl',
  'adminUrl',
  'issuer',
  'coreTarget',
  'clientId',
  'm2mClientId',
  'm2mClientSecret',
  'webhookSecret',
  'ownerEmail',
  'ownerPassword',
] as const satisfies readonly (keyof Quickstart)[]

/** Reads the quickstart file; null when it is missing or incomplete. */
export async function readQuickstart(dataDir: string): Promise<Quickstart | null> {
  const value = await readJson(quickstartPath(dataDir))
  if (value === null || quickstartFields.some((field) => textOf(value, field) === undefined))
    return null
  const fields = quickstartFields.map((field) => [field, textOf(value, field) ?? ''] as const)
  const edgeUrl = textOf(value, 'edgeUrl')
  return {
    ...(Object.fromEntries(fields) as Record<(typeof quickstartFields)[number], string>),
    ...(edgeUrl === undefined ? {} : { edgeUrl }),
    database: textOf(value, 'database') === 'embedded' ? 'embedded' : 'external',
  }
}

export const writeQuickstart = (dataDir: string, quickstart: Quickstart): Promise<void> =>
  writePrivate(quickstartPath(dataDir), quickstart)

async function writePrivate(path: string, value: object): Promise<void> {
  const draft = `${path}.${process.pid}`
  await writeFile(draft, JSON.stringify(value, null, 2) + '\n', { mode: 0o600 })
  await chmod(draft, 0o600)
  // Replace the file in one step, so that a reader never sees half of it.
  await rename(draft, path)
}

async function readJson(path: string): Promise<object | null> {
  const text = await readFile(path, 'utf8').catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return null
    throw new Error(`cannot read ${path} (${error.code ?? error.message})`, { cause: error })
  })
  if (text === null) return null
  try {
    const value: unknown = JSON.parse(text)
    if (typeof value === 'object' && value !== null) return value
  } catch (error) {
    throw new Error(
      `${path} is not JSON; restore it from a copy, or remove it: the next start creates a new one`,
      { cause: error },
    )
  }
  throw new Error(
    `${path} does not contain a JSON object; remove it: the next start creates a new one`,
  )
}

function textOf(value: object | null, field: string): string | undefined {
  const text: unknown = value === null ? undefined : Reflect.get(value, field)
  return typeof text === 'string' && text !== '' ? text : undefined
}
