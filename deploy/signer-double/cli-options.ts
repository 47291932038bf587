import { parseArgs } from 'node:util'
import { DIALECTS, isMode, MODES } from './dialect.ts'
import { directSink } from './events/direct-sink.ts'
import type { GatewaySessionsOptions } from './gateway-sessions.ts'
import { parseHeaderFlag } from './wire/go-headers.ts'
import type { Sink } from './events/lossy-queue.ts'
import { DEFAULT_EV, DEFAULT_ORCHESTRATOR } from './options.ts'
import type { SignerDoubleOptions } from './options.ts'
import { fileSink, kafkaSink } from './events/sinks.ts'

const UNTYPED_PIXELS = 1_000_000n

const text = { type: 'string' } as const

const FLAGS = {
  port: text,
  mode: text,
  'webhook-url': text,
  'webhook-headers': text,
  'utc-offset': text,
  ev: text,
  price: text,
  'pixels-per-unit': text,
  type: text,
  kafka: text,
  topic: text,
  'direct-url': text,
  'direct-secret': text,
  file: text,
  drop: text,
  duplicate: text,
  reorder: text,
  'delay-ms': text,
  seed: text,
  drive: text,
  interval: text,
  calls: text,
  authorization: text,
  app: text,
  help: { type: 'boolean' },
} as const

/**
 * Variables for options with secrets, because other accounts of the machine can read a process's
 * arguments.
 */
const SECRETS = {
  'webhook-headers': 'SIGNER_WEBHOOK_HEADERS',
  'direct-secret': 'SIGNER_DIRECT_SECRET',
  authorization: 'SIGNER_AUTHORIZATION',
} as const

function secretsOf(env: NodeJS.ProcessEnv): Record<string, string> {
  const values = Object.entries(SECRETS).map(([flag, name]) => [flag, env[name] ?? ''] as const)
  return Object.fromEntries(values.filter(([, value]) => value !== ''))
}

type Flags = Readonly<Partial<Record<Exclude<keyof typeof FLAGS, 'help'>, string>>>
type Name = keyof Flags

export type CliOptions = Readonly<{
  double: SignerDoubleOptions
  drive: Omit<GatewaySessionsOptions, 'signal' | 'report'> | undefined
}>

/** A flag that the user must correct; the message is one line. */
const bad = (name: Name, what: string): RangeError => new RangeError(`--${name} ${what}`)

type Range = Readonly<{ from: number; to: number; byDefault: number }>

function number(flags: Flags, name: Name, { from, to, byDefault }: Range): number {
  const text = flags[name]
  if (text === undefined) return byDefault
  const value = Number(text)
  if (!/^\d+(\.\d+)?$/.test(text) || value < from || value > to) {
    throw bad(name, `must be a number from ${from} to ${to}, not "${text}"`)
  }
  return value
}

function integer(flags: Flags, name: Name, range: Range): number {
  const value = number(flags, name, range)
  if (!Number.isInteger(value)) throw bad(name, `must be a whole number, not "${flags[name]}"`)
  return value
}

function positive(flags: Flags, name: Name, byDefault: bigint): bigint {
  const digits = flags[name] ?? byDefault.toString()
  if (!/^[1-9]\d{0,17}$/.test(digits)) {
    throw bad(name, `must be a positive whole number of at most 18 digits, not "${digits}"`)
  }
  return BigInt(digits)
}

function httpUrl(flags: Flags, name: Name): string | undefined {
  const address = flags[name]
  if (address === undefined) return undefined
  const url = URL.parse(address)
  if (url?.protocol !== 'http:' && url?.protocol !== 'https:') {
    throw bad(name, 'must be an http or https URL')
  }
  return address
}

function utcOffset(flags: Flags): number {
  const offset = flags['utc-offset'] ?? '+00:00'
  const match = /^([+-])(\d\d):([0-5]\d)$/.exec(offset)
  const minutes = Number(match?.[2]) * 60 + Number(match?.[3])
  if (match === null || minutes > 14 * 60) {
    throw bad('utc-offset', 'must look like +02:00 or -07:30')
  }
  return match[1] === '-' ? -minutes : minutes
}

function sinksOf(flags: Flags): Sink[] {
  const { topic = 'livepeer-gateway-events' } = flags
  const url = httpUrl(flags, 'direct-url')
  const secret = flags['direct-secret']
  if (url !== undefined && secret === undefined) throw bad('direct-url', 'needs --direct-secret')
  const brokers = flags.kafka?.split(',').map((broker) => broker.trim())
  if (brokers?.some((broker) => !/^[^\s:]+:\d{1,5}$/.test(broker)) === true) {
    throw bad('kafka', 'must be a list of host:port')
  }
  return [
    ...(brokers === undefined ? [] : [kafkaSink(brokers, topic)]),
    ...(url === undefined || secret === undefined
      ? []
      : [directSink({ url, secret, flushMs: 3_000 })]),
    ...(flags.file === undefined ? [] : [fileSink(flags.file)]),
  ]
}

/** Makes the default price buy one second or one call with every type. */
const UNITS: Readonly<Record<string, bigint>> = { lv2v: 27_648_000n, '': UNTYPED_PIXELS }

function typeOf(flags: Flags, types: readonly string[]): string {
  const type = flags.type ?? (types.includes('live') ? 'live' : 'lv2v')
  if (!types.includes(type)) throw bad('type', `must be one of ${types.filter(Boolean).join(', ')}`)
  return type
}

function driveOf(flags: Flags, type: string): CliOptions['drive'] {
  const sessions = integer(flags, 'drive', { from: 1, to: 1000, byDefault: 0 })
  if (sessions === 0 && flags.calls !== undefined) throw bad('calls', 'needs --drive')
  if (sessions === 0) return undefined
  return {
    sessions,
    type,
    intervalMs: number(flags, 'interval', { from: 0.01, to: 3600, byDefault: 5 }) * 1000,
    calls:
      flags.calls === undefined
        ? undefined
        : integer(flags, 'calls', { from: 1, to: 1_000_000, byDefault: 1 }),
    app: flags.app ?? '',
    authorization: flags.authorization,
    inPixels: UNTYPED_PIXELS,
  }
}

const chance = (flags: Flags, name: Name): number =>
  number(flags, name, { from: 0, to: 1, byDefault: 0 })

/**
 * Parses the flags to settings or `help`. Throws an Error with one clear line for a flag that is
 * unknown, incomplete or out of range. Creates the sinks last, when all else is valid.
 */
export function parseFlags(argv: readonly string[]): CliOptions | 'help' {
  const { help, ...options } = parseArgs({ args: [...argv], options: FLAGS, strict: true }).values
  const flags = { ...secretsOf(process.env), ...options }
  if (help === true) return 'help'
  const { mode = 'go-livepeer' } = flags
  if (!isMode(mode)) throw bad('mode', `must be one of ${MODES.join(', ')}, not "${mode}"`)
  const url = httpUrl(flags, 'webhook-url')
  const headers = parseHeaderFlag(flags['webhook-headers'] ?? '')
  const type = typeOf(flags, DIALECTS[mode].types)
  const drive = driveOf(flags, type)
  const double = {
    mode,
    port: integer(flags, 'port', { from: 0, to: 65_535, byDefault: 8936 }),
    ...(url !== undefined && { webhook: { url, headers } }),
    utcOffsetMinutes: utcOffset(flags),
    ev: positive(flags, 'ev', DEFAULT_EV),
    orchestrator: {
      pricePerUnit: positive(flags, 'price', DEFAULT_ORCHESTRATOR.pricePerUnit),
      pixelsPerUnit: positive(flags, 'pixels-per-unit', UNITS[type] ?? 1n),
    },
    faults: {
      drop: chance(flags, 'drop'),
      duplicate: chance(flags, 'duplicate'),
      reorder: chance(flags, 'reorder'),
      delayMs: number(flags, 'delay-ms', { from: 0, to: 2000, byDefault: 0 }),
    },
    seed: integer(flags, 'seed', { from: 0, to: 2 ** 32 - 1, byDefault: 1 }),
  }
  return { double: { ...double, sinks: sinksOf(flags) }, drive }
}
