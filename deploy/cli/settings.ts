import { readCoreConfig } from '../../core/config.ts'
import { readCollectorConfig } from '../../core/collector/app.ts'
import { type Env, type EnvReader, type Setting, createEnvReader } from '../../core/lib/env.ts'
import { readLogLevel } from '../../core/lib/process.ts'
import { readAdminHost } from '../../core/lib/settings.ts'
import { readGatewayConfig } from '../../gateway/config.ts'
import { readSidecarConfig } from '../../sidecar/config.ts'
import { resolveDataDir } from '../all-in-one/data-dir.ts'
import { applyPortBase, readPorts } from '../all-in-one/ports.ts'

/** Settings that `npm start` generates if they are not set. */
const providedSettings: ReadonlySet<string> = new Set([
  'DATABASE_URL',
  'CORE_TOKEN',
  'KEY_ENCRYPTION_KEY',
  'SECRET_PEPPERS',
  'WEBHOOK_SECRET',
])

export const isProvided = (name: string): boolean => providedSettings.has(name)

function readAllInOne(env: EnvReader): void {
  readCoreConfig(env)
  readGatewayConfig(env)
  readSidecarConfig(env)
  readLogLevel(env)
  readPorts(env)
  readAdminHost(env)
}

function readProcess(read: (env: EnvReader) => unknown) {
  return (env: EnvReader): void => {
    read(env)
    readLogLevel(env)
    readAdminHost(env)
  }
}

/** The processes, each with the function that declares its settings. */
const processes: Readonly<Record<string, (env: EnvReader) => void>> = {
  core: readProcess(readCoreConfig),
  gateway: readProcess(readGatewayConfig),
  sidecar: readProcess(readSidecarConfig),
  collector: readProcess(readCollectorConfig),
  'all-in-one': readAllInOne,
}

/** Returns the settings of the all-in-one service, sorted by name, and the problems in `env`. */
export function readSettings(env: Env): { settings: Setting[]; problems: string[] } {
  const variables = { ...env }
  applyPortBase(variables)
  const reader = createEnvReader(variables, { isEmbedded: true })
  readAllInOne(reader)
  const settings = new Map([dataDirSetting(env), ...reader.settings].map((one) => [one.name, one]))
  const problems = reader.problems.filter(
    (line) => ![...providedSettings].some((name) => line.startsWith(name) && !env[name]),
  )
  return {
    settings: [...settings.values()].toSorted(byName),
    problems: [...new Set(problems)],
  }
}

const dataDirSetting = (env: Env): Setting => ({
  name: 'TOLLGATE_DATA_DIR',
  value: resolveDataDir(env),
  secret: false,
  source: env['TOLLGATE_DATA_DIR'] ? 'environment' : 'default',
  meaning: 'Folder of the all-in-one service: embedded database, secrets, quickstart file, log.',
})

export interface DeclaredSetting {
  readonly name: string
  readonly meaning: string
  /** Empty without a default. */
  readonly fallback: string
  readonly secret: boolean
  readonly processes: readonly string[]
}

/** Returns all settings of all processes, as declared by the code. */
export function declaredSettings(): DeclaredSetting[] {
  const declared = new Map<string, DeclaredSetting>()
  function add({ name, meaning, value, secret }: Setting, process: string): void {
    const known = declared.get(name)?.processes ?? []
    const processes = known.includes(process) ? known : [...known, process]
    declared.set(name, { name, meaning, fallback: value, secret, processes })
  }
  for (const [process, declare] of Object.entries(processes)) {
    const reader = createEnvReader({})
    declare(reader)
    for (const setting of reader.settings) add(setting, process)
  }
  for (const setting of adminPorts) declared.set(setting.name, setting)
  add({ ...dataDirSetting({}), value: '.tollgate' }, 'all-in-one')
  return [...declared.values()].toSorted(byName)
}

/**
 * The admin ports are listed here, because the `main.ts` of each process declares its port only
 * when it starts.
 */
const adminPorts = [
  { process: 'core', name: 'CORE_ADMIN_PORT', fallback: '9464' },
  { process: 'gateway', name: 'GATEWAY_ADMIN_PORT', fallback: '9465' },
  { process: 'sidecar', name: 'SIDECAR_ADMIN_PORT', fallback: '9466' },
  { process: 'collector', name: 'COLLECTOR_ADMIN_PORT', fallback: '9467' },
].map(({ process, name, fallback }): DeclaredSetting => ({
  name,
  fallback,
  meaning: `Port of ${process}'s metrics and health.`,
  secret: false,
  processes: [process],
}))

const byName = (a: { readonly name: string }, b: { readonly name: string }): number =>
  a.name < b.name ? -1 : 1
