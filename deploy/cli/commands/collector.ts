import { spawnSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { action, createCommand } from '../command.ts'
import { leanEnvironment, replaceProcess } from '../replace-process.ts'

const file = new URL('../../../core/collector/main.ts', import.meta.url)

/**
 * V8 lets garbage grow to what a dedicated machine could spare. Almost everything that a collector
 * allocates is dead after its batch, so that frequent collections are cheap: 145 MB resident at
 * full rate instead of 290 MB (measured). The heap limit is far above: an event of a megabyte that
 * consists of brackets takes 70 MB more to read.
 */
const nodeOptions = [
  '--max-semi-space-size=2',
  '--max-old-space-size=192',
  '--heap-growing-percent=5',
  '--optimize-for-size',
  '--v8-pool-size=1',
]

const fillMs = 30_000

export const collector = createCommand('collector', {
  summary: 'collects events from Kafka in a process of its own',
  examples: ['KAFKA_BROKERS=127.0.0.1:9092 ./tollgate collector'],
  action: action({
    text:
      "Turns the signer's events on Kafka into tickets, in a process apart from core. Any number of collectors " +
      'share the partitions of KAFKA_TOPIC as the group KAFKA_GROUP; core then runs with COLLECTOR=off. A ' +
      'collector needs DATABASE_URL and KAFKA_BROKERS, and REDIS_URL if core has it. Its metrics and health are ' +
      'on COLLECTOR_ADMIN_PORT. On SIGTERM it finishes its batch and exits.',
    run: async () => {
      if (process.execve) fillCollectorCache()
      await replaceProcess({ file, nodeOptions })
    },
  }),
})

/**
 * Stores the collector's compiled code. V8 has a cache for each set of its options, so only a
 * process with the same options fills the right one. If the cache cannot be written, the collector
 * starts anyway.
 */
export function fillCollectorCache(): void {
  spawnSync(process.execPath, [...nodeOptions, fileURLToPath(file), '--load-only'], {
    env: leanEnvironment(),
    stdio: 'ignore',
    timeout: fillMs,
  })
}
