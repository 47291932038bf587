import { execFileSync, fork } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync, readdirSync } from 'node:fs'
import { cp, mkdtemp, rm, symlink } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { basename, join, relative } from 'node:path'
import type { Finding } from './row.ts'
import { median, middleHalf, pairedRatio } from './stats.ts'

/** A trick for speed that can be switched off: a patch in `ablations/`. */
export interface Ablation {
  readonly name: string
  readonly path: string
  /** Rows of the bench that show the gain. */
  readonly rows: readonly string[]
  /** The plain version that the patch restores. */
  readonly plain: string
}

const root = join(import.meta.dirname, '../..')
const folder = join(import.meta.dirname, 'ablations')
const rounds = 3

/** Lists the patches. The first line of each names its rows: `# ingest, spool: plain version`. */
export function readAblations(): Ablation[] {
  const files = readdirSync(folder).filter((file) => file.endsWith('.patch'))
  return files.toSorted().map((file) => {
    const path = join(folder, file)
    const [line = ''] = readFileSync(path, 'utf8').split('\n')
    const [, rows = '', plain = ''] = /^# ([\w-]+(?:, [\w-]+)*): (.+)$/.exec(line) ?? []
    if (plain === '') throw new Error(`${file} must start with "# ROW, ...: plain version"`)
    return { name: basename(file, '.patch'), path, rows: rows.split(', '), plain }
  })
}

export interface AblateOptions {
  readonly quick: boolean
  readonly say: (line: string) => void
}

/**
 * Runs an ablation's rows in alternating rounds: here, and in a copy of the repository with the
 * patch. Returns a finding for each figure: its value here by its value in the copy.
 */
export async function ablate(
  { path, rows }: Ablation,
  { quick, say }: AblateOptions,
): Promise<Finding[]> {
  const copy = await mkdtemp(join(tmpdir(), 'tollgate-ablation-'))
  try {
    await copyRepository(copy)
    execFileSync('git', ['apply', path], { cwd: copy })
    const here: Finding[][] = []
    const there: Finding[][] = []
    for (let round = 1; round <= rounds; round++) {
      here.push(await runRows(root, rows, quick))
      there.push(await runRows(copy, rows, quick))
      say(`round ${round} of ${rounds}`)
    }
    return compare(here, there)
  } finally {
    await rm(copy, { recursive: true, force: true })
  }
}

/** Copies the working tree with its generated code, and links the installed packages. */
async function copyRepository(to: string): Promise<void> {
  const omitted = new Set(['.git', 'node_modules'])
  const filter = (path: string): boolean => !omitted.has(relative(root, path))
  await cp(root, to, { recursive: true, filter })
  await symlink(join(root, 'node_modules'), join(to, 'node_modules'))
}

/** Runs rows in another process, which sends their findings. */
async function runRows(
  repository: string,
  rows: readonly string[],
  quick: boolean,
): Promise<Finding[]> {
  const child = fork(
    join(repository, 'test/bench/bench.ts'),
    ['--report-only', ...(quick ? ['--quick'] : []), ...rows.flatMap((row) => ['--only', row])],
    {
      cwd: repository,
      execArgv: ['--expose-gc'],
      serialization: 'advanced',
      stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
    },
  )
  const received: Finding[] = []
  child.on('message', (findings: Finding[]) => void received.push(...findings))
  await once(child, 'exit')
  const failed = received.find(({ value }) => Number.isNaN(value))
  if (failed || received.length === 0)
    throw new Error(`${rows.join(', ')} in ${repository}: ${failed?.detail ?? 'no figures'}`)
  return received
}

function compare(
  here: readonly (readonly Finding[])[],
  there: readonly (readonly Finding[])[],
): Finding[] {
  return (here[0] ?? []).map(({ name, unit }) => {
    const [on, off] = [valuesOf(here, name), valuesOf(there, name)]
    const detail = `with ${describe(on, unit)}; without ${describe(off, unit)}`
    return { name, unit: '', target: null, ...pairedRatio(on, off), detail }
  })
}

const valuesOf = (runs: readonly (readonly Finding[])[], name: string): number[] =>
  runs.map((findings) => findings.find((finding) => finding.name === name)?.value ?? NaN)

function describe(values: readonly number[], unit: Finding['unit']): string {
  const { low, high } = middleHalf(values)
  const [middle, ...ends] = [median(values), low, high].map((value) => value.toFixed(3))
  return `${middle}${unit && ` ${unit}`} (${ends.join(' - ')})`
}
