import { readCoreConfig } from '../../core/config.ts'
import { readCollectorConfig } from '../../core/collector/app.ts'
import { type Env, type EnvReader, type Setting, createEnvReader } from '../../core/lib/env.ts'
import type { Environment } from '../../core/lib/settings/environment.ts'
import { readAdminHost, readLogLevel } from '../../core/lib/settings/shared.ts'
import { readTelemetry } from '../../core/lib/telemetry/config.ts'
import { readGatewayConfig } from '../../gateway/config.ts'
import { readSidecarConfig } from '../../sidecar/config.ts'
import { resolveDataDir } from '../local/data-dir.ts'
import { applyPortBase, readPorts } from '../local/ports.ts'

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
  env.live(() => readLogLevel(env))
  readTelemetry(env, allInOne)
  readPorts(env)
  readAdminHost(env)
}

interface Program {
  readonly name: string
  /** The default of its admin port, which its `main.ts` declares when it starts. */
  readonly adminPort: string
  readonly read: (env: EnvReader) => unknown
}

function readProgram({ name, adminPort, read }: Program) {
  return (env: EnvReader): void => {
    read(env)
    env.live(() => readLogLevel(env))
    readTelemetry(env, name)
    readAdminHost(env)
    env.port(`${name.toUpperCase()}_ADMIN_PORT`, {
      fallback: adminPort,
      meaning: `Port of ${name}'s metrics and health.`,
    })
  }
}

const programs: readonly Program[] = [
  { name: 'core', adminPort: '9464', read: readCoreConfig },
  { name: 'gateway', adminPort: '9465', read: readGatewayConfig },
  { name: 'sidecar', adminPort: '9466', read: readSidecarConfig },
  { name: 'collector', adminPort: '9467', read: readCollectorConfig },
]

const allInOne = 'all-in-one'

/** The processes, each with the function that declares its settings. */
const processes: Readonly<Record<string, (env: EnvReader) => void>> = {
  ...Object.fromEntries(programs.map((program) => [program.name, readProgram(program)])),
  [allInOne]: readAllInOne,
}

export const processNames: readonly string[] = Object.keys(processes)

export interface ReadSettings {
  /** Sorted by name. */
  readonly settings: readonly Setting[]
  readonly problems: readonly string[]
  readonly warnings: readonly string[]
}

/** Reads the settings of a process, by default the all-in-one service, as it does at its start. */
export function readSettings({ env, files }: Environment, process = allInOne): ReadSettings {
  const isEmbedded = process === allInOne
  const variables = { ...env }
  if (isEmbedded) applyPortBase(variables)
  const reader = createEnvReader(variables, { isEmbedded, files })
  processes[process]?.(reader)
  const first = isEmbedded ? startSettings(env) : []
  const settings = new Map([...first, ...reader.settings].map((one) => [one.name, one]))
  const isMade = (line: string): boolean =>
    isEmbedded && [...providedSettings].some((name) => line.startsWith(name) && !env[name])
  return {
    settings: [...settings.values()].toSorted(byName),
    problems: [...new Set(reader.problems)].filter((line) => !isMade(line)),
    warnings: reader.warnings,
  }
}

const passphraseMin = 12

/** Reads the passphrase of `tollgate backup` and `tollgate restore`. */
export function readPassphrase(env: EnvReader): string {
  const passphrase =
    env.optional('PASSPHRASE', {
      secret: true,
      meaning: `Encrypts the file of \`tollgate backup\`, and opens it for \`tollgate restore\`; at least ${passphraseMin} characters. Without it the file is lost.`,
    }) ?? ''
  if (passphrase.length < passphraseMin)
    env.problem(`PASSPHRASE must have at least ${passphraseMin} characters`)
  return passphrase
}

/** Settings that are read before all others. */
const startSettings = (env: Env): Setting[] => [
  {
    name: 'TOLLGATE_CONFIG',
    value: env['TOLLGATE_CONFIG'] ?? 'tollgate.yaml',
    fallback: 'tollgate.yaml',
    secret: false,
    reloads: false,
    source: env['TOLLGATE_CONFIG'] ? 'environment' : 'default',
    meaning: 'File with settings, one "NAME: value" each (YAML). A variable wins over it.',
  },
  {
    name: 'TOLLGATE_DATA_DIR',
    value: resolveDataDir(env),
    fallback: resolveDataDir({}),
    secret: false,
    reloads: false,
    source: env['TOLLGATE_DATA_DIR'] ? 'environment' : 'default',
    meaning: 'Folder of the all-in-one service: embedded database, secrets, quickstart file, log.',
  },
]

export interface DeclaredSetting {
  readonly name: string
  readonly meaning: string
  /** Empty without a default. */
  readonly fallback: string
  readonly secret: boolean
  /** Whether SIGHUP reloads it in every process that reads it. */
  readonly reloads: boolean
  readonly processes: readonly string[]
}

/** Returns all settings of all processes, as declared by the code. */
export function declaredSettings(): DeclaredSetting[] {
  const declared = new Map<string, DeclaredSetting>()
  function add({ name, meaning, value, secret, ...setting }: Setting, process: string): void {
    const known = declared.get(name)?.processes ?? []
    const reloads = setting.reloads && (declared.get(name)?.reloads ?? true)
    const processes = known.includes(process) ? known : [...known, process]
    declared.set(name, { name, meaning, fallback: value, secret, reloads, processes })
  }
  for (const [process, declare] of Object.entries(processes)) {
    const reader = createEnvReader({})
    declare(reader)
    for (const setting of reader.settings) add(setting, process)
  }
  const commands = createEnvReader({})
  readPassphrase(commands)
  for (const setting of commands.settings)
    for (const command of ['backup', 'restore']) add(setting, command)
  const [config, dataDir] = startSettings({})
  for (const process of processNames) if (config) add(config, process)
  if (dataDir) add({ ...dataDir, value: '.tollgate' }, allInOne)
  return [...declared.values()].toSorted(byName)
}

const byName = (a: { readonly name: string }, b: { readonly name: string }): number =>
  a.name < b.name ? -1 : 1
