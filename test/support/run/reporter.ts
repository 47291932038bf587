import { Redis } from 'ioredis'
import type { Reporter, TestModule, Vitest } from 'vitest/node'
import { missingParts, missingProvider, missingStripe, type Parts } from './parts.ts'
import { searchRun } from './secrecy.ts'

type Clusters = Record<string, { version: string; host: string }>

/**
 * Prints, after everything else, the parts of each vitest project and a plain closing line that CI
 * reads: `N passed, N failed, N skipped`. A secret in a log of the run counts as a failure.
 */
export function partsReporter(env: NodeJS.ProcessEnv, logs: string): Reporter {
  let vitest: Vitest | undefined
  return {
    onInit: (started) => {
      vitest = started
    },
    onTestRunEnd: async (modules, unhandledErrors) => {
      const projects = new Map(modules.map(({ project }) => [project.name, project]))
      const clusters = await readClusters(vitest?.getRootProject().getProvidedContext().databases)
      const lines: string[] = []
      for (const [name, project] of projects) {
        lines.push(`${name}: ${await describeParts(project.getProvidedContext().parts, clusters)}`)
      }
      lines.push(...notRun('e2e-real', missingParts(env)))
      lines.push(...notRun('keycloak', missingProvider(env)))
      lines.push(...notRun('stripe-mock', missingStripe(env)))
      const { lines: logged, secrets, leaks } = await searchRun(logs)
      lines.push(
        `logs: ${logged} lines, ${leaks.length} of them with a secret; ${secrets} secrets were noted`,
      )
      lines.push(...leaks.map(({ what, line }) => `logs: ${what} in ${line.slice(0, 500)}`))
      lines.push(...failedFiles(modules))
      if (leaks.length > 0) process.exitCode = 1
      const { passed, failed, skipped } = count(modules)
      const failures = failed + unhandledErrors.length + leaks.length
      const closing = `${passed} passed, ${failures} failed, ${skipped} skipped`
      process.stdout.write(`${lines.join('\n')}\n\n${closing}\n`)
    },
  }
}

/** Lists the projects that could not run here; `.ci/run` treats such a line as a failure. */
const notRun = (name: string, missing: readonly string[]): string[] =>
  missing.length > 0 ? [`${name}: not run, needs ${missing.join(', ')}`] : []

/** Lists the files that failed; `.ci/run` runs a few of them again, alone. */
const failedFiles = (modules: readonly TestModule[]): string[] =>
  modules
    .filter((module) => !module.ok())
    .map(({ project, relativeModuleId }) => `failed: ${project.name} ${relativeModuleId}`)

/**
 * Counts tests. A file or suite that fails outside its tests counts as one failure, and so does each
 * of its tests that could not run.
 */
function count(modules: readonly TestModule[]) {
  const counts = { passed: 0, failed: 0, skipped: 0, pending: 0 }
  for (const module of modules) {
    if (module.errors().length > 0) counts.failed++
    for (const suite of module.children.allSuites()) if (suite.errors().length > 0) counts.failed++
    for (const test of module.children.allTests()) {
      const { state } = test.result()
      counts[state === 'skipped' && isBroken(module) ? 'failed' : state]++
    }
  }
  return counts
}

const isBroken = (module: TestModule): boolean =>
  module.errors().length > 0 ||
  [...module.children.allSuites()].some((suite) => suite.errors().length > 0)

async function readClusters(server: string | undefined): Promise<Clusters> {
  if (server === undefined) return {}
  const response = await fetch(`${server}/clusters`, { signal: AbortSignal.timeout(5_000) })
  const clusters: Clusters = JSON.parse(await response.text())
  return clusters
}

async function describeParts(parts: Parts, clusters: Clusters): Promise<string> {
  return [
    describeDatabase(parts, clusters),
    parts.redisUrl ? await describeRedis(parts.redisUrl) : 'cache in process',
    parts.kafkaBrokers ? `Kafka at ${parts.kafkaBrokers.join(', ')}` : 'direct mode',
  ].join(', ')
}

function describeDatabase(parts: Parts, { external, embedded }: Clusters): string {
  const used = parts.databaseUrl ? external : embedded
  if (!used) return 'no database used'
  return `PostgreSQL ${used.version} ${parts.databaseUrl ? `at ${used.host}` : 'embedded'}`
}

async function describeRedis(url: string): Promise<string> {
  const redis = new Redis(url, {
    lazyConnect: true,
    connectTimeout: 2_000,
    retryStrategy: () => null,
  })
  redis.on('error', () => {})
  try {
    const info = await redis.info('server')
    const version = /redis_version:(\S+)/.exec(info)?.[1] ?? 'unknown'
    return `Redis ${version} at ${new URL(url).host}`
  } catch {
    return `Redis at ${new URL(url).host}, which does not answer`
  } finally {
    redis.disconnect()
  }
}
