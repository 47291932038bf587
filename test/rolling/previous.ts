import { execFile } from 'node:child_process'
import { access, mkdir, mkdtemp, rename, rm } from 'node:fs/promises'
import { homedir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'

const run = promisify(execFile)
const root = join(import.meta.dirname, '../..')
const outputMax = 64 * 1024 * 1024

/**
 * Returns the folder with the code of a tag or commit, its own dependencies and generated code;
 * `last` is the last release. Prepares it once, in ~/.cache/tollgate-ci (or TOLLGATE_CI_CACHE).
 */
export async function prepareRelease(name: string): Promise<string> {
  const tag = name === 'last' ? await findLastRelease() : name
  if (!/^(v\d+\.\d+\.\d+|[0-9a-f]{7,40})$/.test(tag))
    throw new Error(`${tag} is neither the tag of a release nor a commit, nor "last"`)
  const cache = process.env['TOLLGATE_CI_CACHE'] ?? join(homedir(), '.cache/tollgate-ci')
  const { stdout } = await run('git', ['rev-parse', '--short=12', `${tag}^{commit}`], { cwd: root })
  const folder = join(cache, `release-${tag}-${stdout.trim()}`)
  if (await exists(folder)) return folder
  await mkdir(cache, { recursive: true })
  const partial = await mkdtemp(`${folder}.`)
  try {
    const archive = join(partial, 'code.tar')
    await run('git', ['archive', '--output', archive, tag], { cwd: root })
    await run('tar', ['-xf', archive, '-C', partial])
    await rm(archive)
    await run('npm', ['ci', '--no-audit', '--no-fund'], { cwd: partial, maxBuffer: outputMax })
    await run(process.execPath, ['deploy/setup.mjs'], { cwd: partial, maxBuffer: outputMax })
    await rename(partial, folder)
  } catch (error) {
    await rm(partial, { recursive: true, force: true })
    // Another process may have been faster.
    if (!(await exists(folder))) throw error
  }
  return folder
}

/**
 * Returns the commit of the last release before this one, by its subject (CONTRIBUTING.md,
 * "Releases"), because clones often lack tags. Throws if the clone has none.
 */
async function findLastRelease(): Promise<string> {
  const subject = ['--extended-regexp', '--grep=^release: [0-9]+\\.[0-9]+\\.[0-9]+$']
  const args = ['log', '--max-count=1', '--format=%H', ...subject, 'HEAD^']
  const { stdout } = await run('git', args, { cwd: root })
  const commit = stdout.trim()
  if (commit === '')
    throw new Error(
      'this clone has no commit "release: X.Y.Z": fetch the whole history, or name a commit by --from',
    )
  return commit
}

const exists = (path: string): Promise<boolean> =>
  access(path).then(
    () => true,
    () => false,
  )
