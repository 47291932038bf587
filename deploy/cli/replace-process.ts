import { once } from 'node:events'
import { fileURLToPath } from 'node:url'

const cache = fileURLToPath(new URL('../../node_modules/.cache/tollgate', import.meta.url))

const environment = {
  // Also holds the code without its types, so that the stripper is not loaded (25 MB).
  NODE_COMPILE_CACHE: cache,
  // glibc gives each thread memory of its own and keeps large pieces that are freed; both only for speed.
  MALLOC_ARENA_MAX: '2',
  MALLOC_MMAP_THRESHOLD_: '131072',
  MALLOC_TRIM_THRESHOLD_: '131072',
}

/**
 * Options of Node for a process that stays small. V8 lets garbage pile up to several times the live heap, of which most is
 * never touched again, and each of its threads keeps pages of its own (bench row `memory-all-in-one`).
 */
export const leanOptions = [
  '--max-semi-space-size=8',
  '--heap-growing-percent=50',
  '--v8-pool-size=1',
] as const

/** A program of the project and the options of Node that it runs under. */
export interface Program {
  readonly file: URL
  readonly nodeOptions: readonly string[]
}

/** Environment of a program that keeps little freed memory. Variables that are already set win. */
export const leanEnvironment = (): Record<string, string> => ({ ...environment, ...definedEnv() })

/**
 * Runs a program in place of this process, under its own options, those of this process, and in `leanEnvironment`. Where a
 * process cannot be replaced the program runs in this one.
 */
export async function replaceProcess({ file, nodeOptions }: Program): Promise<number> {
  const path = fileURLToPath(file)
  if (process.execve)
    process.execve(
      process.execPath,
      [process.execPath, ...nodeOptions, ...process.execArgv, path],
      leanEnvironment(),
    )
  await import(file.href)
  // It ends by a signal.
  await once(process, 'exit')
  return 0
}

const definedEnv = (): Record<string, string> =>
  Object.fromEntries(
    Object.entries(process.env).flatMap(([name, value]) =>
      value === undefined ? [] : [[name, value]],
    ),
  )
