import { execFileSync, spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { open } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, describe, expect, it, onTestFinished } from 'vitest'
import { complaint } from '../../../core/db/embedded/process.ts'
import { coreSecrets, secret } from '../../support/deployment/parts.ts'
import { bareEnv } from '../../support/deployment/processes.ts'

const folder = mkdtempSync(join(tmpdir(), 'tollgate-full-'))
afterAll(() => rmSync(folder, { recursive: true }))

// $0 is the folder. A private file system ends with the process. Without the right to mount one, a
// limit on the size of files fails in the same place, with another code.
const mounted = (options: string): string[] => [
  'unshare',
  '--mount',
  '--map-root-user',
  'sh',
  '-c',
  `mount -t tmpfs -o ${options} tmpfs "$0" && exec "$@"`,
]
const limited = ['sh', '-c', 'ulimit -f 0; exec "$@"']

function mayMount(): boolean {
  try {
    const [command = '', ...args] = mounted('size=1m')
    execFileSync(command, [...args, '/mnt', 'true'], { stdio: 'ignore' })
    return true
  } catch {
    return false
  }
}

const code = mayMount() ? 'ENOSPC' : 'EFBIG'
const cure = code === 'ENOSPC' ? 'free space, or set' : 'set'

/** Runs a program whose folder has no space left, until it ends. Returns what it prints. */
function run(program: string, options: string, env: Readonly<Record<string, string>>) {
  const wrap = code === 'ENOSPC' ? mounted(options) : limited
  const [command = '', ...args] = [...wrap, folder, process.execPath, program]
  const { status, stderr } = spawnSync(command, args, {
    env: { ...bareEnv(), ...env },
    encoding: 'utf8',
    timeout: 60_000,
  })
  return { status, lines: stderr.trim().split('\n') }
}

describe('a full disk', () => {
  it('stops npm start with one line that names TOLLGATE_DATA_DIR', () => {
    const { status, lines } = run('deploy/all-in-one/main.ts', 'size=16k', {
      TOLLGATE_DATA_DIR: folder,
      RATE_FIXED: '3000',
    })
    expect([status, lines]).toEqual([
      1,
      [expect.stringContaining(`cannot write to ${folder} (${code}); ${cure} TOLLGATE_DATA_DIR`)],
    ])
  })

  it('of PostgreSQL is reported with the same cure', async () => {
    const path = join(folder, 'postgres.log')
    const line = 'FATAL:  could not write to file "pg_wal/xlogtemp.29": No space left on device'
    writeFileSync(path, `${line}\n`)
    const file = await open(path)
    onTestFinished(() => file.close())
    expect(await complaint({ path, file, from: 0 })).toBe(
      `${line} (${path}); free space, or set TOLLGATE_DATA_DIR to a folder on another disk`,
    )
  })

  it('stops a sidecar with one line that names SPOOL_DIR', () => {
    const { status, lines } = run('sidecar/main.ts', 'size=4k,nr_inodes=1', {
      ...coreSecrets(),
      SPOOL_DIR: folder,
      CORE_TOKEN: secret(),
      WEBHOOK_SECRET: secret(),
      SIDECAR_PORT: '0',
      SIDECAR_ADMIN_PORT: '0',
    })
    expect([status, lines]).toEqual([
      1,
      [
        expect.stringMatching(
          new RegExp(`cannot use the spool ${folder} \\(${code}\\); ${cure} SPOOL_DIR`),
        ),
      ],
    ])
  })
})
