import { once } from 'node:events'
import { fileURLToPath } from 'node:url'

const cache = fileURLToPath(new URL('../../node_modules/.cache/tollgate', import.meta.url))

const environment = {
  // Also caches the code without its types, so that the type stripper is not loaded (25 MB).
  NODE_COMPILE_CACHE: cache,
  // glibc gives each thread a separate arena and keeps large freed blocks; both only for speed.
  MALLOC_ARENA_MAX: '2',
  MALLOC_MMAP_THRESHOLD_: '131072',
  MALLOC_TRIM_THRESHOLD_: '131072',
}

/**
 * Node options for a process with little memory. V8 lets garbage grow to several times the live
 * heap and does not touch most of that memory again, and each of its threads keeps separate pages
 * (bench row `memory-all-in-one`).
 */
export const leanOptions = [
  '--max-semi-space-size=8',
  '--heap-growing-percent=50',
  '--v8-pool-size=1',
] as const

/** A program of the project and its Node options. */
export interface Program {
  readonly file: URL
  readonly nodeOptions: readonly string[]
}

/**
 * Environment of a program that keeps little freed memory. Variables that are already set take
 * precedence.
 */
export const leanEnvironment = (): Record<string, string> => ({ ...environment, ...definedEnv() })

/**
 * Replaces this process by a program, with its own options, those of this process, and
 * `leanEnvironment`. If a process cannot be replaced, runs the program in this one.
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
  // The program ends by a signal.
  await once(process, 'exit')
  return 0
}

const definedEnv = (): Record<string, string> =>
  Object.fromEntries(
    Object.entries(process.env).flatMap(([name, value]) =>
      value === undefined ? [] : [[name, value]],
    ),
  )
