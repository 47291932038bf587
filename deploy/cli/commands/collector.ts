import { spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import type { Command } from '../command.ts'

const program = fileURLToPath(new URL('../../../core/collector/main.ts', import.meta.url))
const cache = fileURLToPath(new URL('../../../node_modules/.cache/tollgate', import.meta.url))

/**
 * V8 lets garbage pile up to what a machine of its own could spare. Almost all that a collector allocates is dead
 * after its batch, so that it may be looked for often: 145 MB resident at full rate in place of 290 MB (measured).
 * The bound itself is far above: an event of a megabyte that is all brackets takes 70 MB more to read.
 */
const nodeOptions = [
  '--max-semi-space-size=2',
  '--max-old-space-size=192',
  '--heap-growing-percent=5',
  '--optimize-for-size',
  '--v8-pool-size=1',
]

const fillMs = 30_000

const environment = {
  // Also what the types are stripped from is found there, so that the stripper is not loaded (25 MB).
  NODE_COMPILE_CACHE: cache,
  // glibc gives each thread memory of its own and keeps large pieces that are freed; both only for speed.
  MALLOC_ARENA_MAX: '2',
  MALLOC_MMAP_THRESHOLD_: '131072',
  MALLOC_TRIM_THRESHOLD_: '131072',
}

export const collector: Command = {
  summary: 'collects events from Kafka in a process of its own',
  help: {
    usages: [
      {
        syntax: 'tollgate collector',
        text:
          "Turns the signer's events on Kafka into tickets, apart from core. Any number of collectors share the " +
          'partitions of KAFKA_TOPIC as the group KAFKA_GROUP; core then runs with COLLECTOR=off. A collector needs ' +
          'DATABASE_URL and KAFKA_BROKERS, and REDIS_URL where core has it. Its metrics and health are on ' +
          'COLLECTOR_ADMIN_PORT. On SIGTERM it finishes its batch and exits.',
      },
    ],
    examples: ['KAFKA_BROKERS=127.0.0.1:9092 ./tollgate collector'],
  },
  run: async () => {
    if (!process.execve) return runHere()
    const env = { ...environment, ...definedEnv() }
    fillCache(env)
    return process.execve(process.execPath, [process.execPath, ...nodeOptions, program], env)
  },
}

async function runHere(): Promise<number> {
  await import('../../../core/collector/main.ts')
  // It ends by a signal.
  await once(process, 'exit')
  return 0
}

// V8 keeps a cache for each set of its options, so only a process of the same ones fills the right one. Where it cannot
// be written, the collector starts all the same.
function fillCache(env: Readonly<Record<string, string>>): void {
  spawnSync(process.execPath, [...nodeOptions, program, '--load-only'], {
    env,
    stdio: 'ignore',
    timeout: fillMs,
  })
}

const definedEnv = (): Record<string, string> =>
  Object.fromEntries(
    Object.entries(process.env).flatMap(([name, value]) =>
      value === undefined ? [] : [[name, value]],
    ),
  )
