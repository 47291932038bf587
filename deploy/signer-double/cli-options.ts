import { type Option, UsageError, integer, number, parsed, text } from '../cli/options.ts'
import { MODES, isMode } from './dialect.ts'
import { DEFAULT_EV, DEFAULT_ORCHESTRATOR } from './options.ts'
import { parseHeaderFlag } from './wire/go-headers.ts'

/**
 * An option with a secret. It may be in a variable instead, because other accounts of the machine
 * can read a process's arguments.
 */
const secret = (label: string, variable: string, meaning: string): Option<string | undefined> => ({
  ...text(label, {
    meaning: `${meaning}; better in ${variable}, which no other account can read.`,
  }),
  convert: (texts) => texts.at(-1) ?? (process.env[variable] || undefined),
})

function parseHttpUrl(address: string, name: string): string {
  const { protocol = '' } = URL.parse(address) ?? {}
  if (/^https?:$/.test(protocol)) return address
  throw new UsageError(`${name} must be an http or https URL`)
}

function parsePositive(digits: string, name: string): bigint {
  if (/^[1-9]\d{0,17}$/.test(digits)) return BigInt(digits)
  throw new UsageError(`${name} must be a positive whole number of at most 18 digits`)
}

const positive = (label: string, fallback: bigint, meaning: string): Option<bigint> => ({
  ...text(label, { meaning }),
  convert: (texts, name) => parsePositive(texts.at(-1) ?? String(fallback), name),
})

function parseOffset(offset: string, name: string): number {
  const match = /^([+-])(\d\d):([0-5]\d)$/.exec(offset)
  const minutes = Number(match?.[2]) * 60 + Number(match?.[3])
  if (match === null || minutes > 14 * 60)
    throw new UsageError(`${name} must look like +02:00 or -07:30`)
  return match[1] === '-' ? -minutes : minutes
}

function parseMode(word: string, name: string) {
  if (isMode(word)) return word
  throw new UsageError(`${name} must be one of ${MODES.join(', ')}`)
}

function parseBrokers(list: string, name: string): string[] {
  const brokers = list.split(',').map((broker) => broker.trim())
  if (brokers.every((broker) => /^[^\s:]+:\d{1,5}$/.test(broker))) return brokers
  throw new UsageError(`${name} must be a list of host:port`)
}

const chance = (event: string): Option<number> =>
  number('P', {
    from: 0,
    to: 1,
    fallback: 0,
    meaning: `Probability from 0 to 1 that ${event}; 0 by default.`,
  })

/** The options of `tollgate signer-double`. */
export const signerDoubleOptions = {
  port: integer('N', {
    from: 0,
    to: 65_535,
    fallback: 8936,
    meaning: 'Port of 127.0.0.1 to listen on, 0 for any; 8936 by default.',
  }),
  mode: parsed(
    text('MODE', { meaning: 'go-livepeer, go-v0.8.11 or node; go-livepeer by default.' }),
    parseMode,
  ),
  webhookUrl: parsed(
    text('URL', { meaning: 'The authorization webhook; without it every payment is allowed.' }),
    parseHttpUrl,
  ),
  webhookHeaders: parsed(
    secret(
      'HEADERS',
      'SIGNER_WEBHOOK_HEADERS',
      'Headers for the webhook: "Name:value,Name2:value2" (no comma in a value)',
    ),
    parseHeaderFlag,
  ),
  utcOffset: parsed(
    text('OFFSET', { meaning: 'Time zone of webhook states, such as -07:30; +00:00 by default.' }),
    parseOffset,
  ),
  ev: positive('WEI', DEFAULT_EV, 'Expected value of one ticket; 100000000000 by default.'),
  price: positive(
    'WEI',
    DEFAULT_ORCHESTRATOR.pricePerUnit,
    "The orchestrator's price per unit; 100000000000 by default.",
  ),
  pixelsPerUnit: parsed(
    text('N', {
      meaning:
        'Units that the price buys; by default the pixels of a second for lv2v, 1000000 for "", else 1.',
    }),
    parsePositive,
  ),
  type: text('TYPE', {
    meaning: 'Type of driven sessions: live, lv2v, fixed or ""; live by default.',
  }),
  kafka: parsed(
    text('BROKERS', {
      meaning: 'Kafka brokers for events, as a comma-separated list of host:port.',
    }),
    parseBrokers,
  ),
  topic: text('NAME', {
    fallback: 'livepeer-gateway-events',
    meaning: 'Kafka topic; livepeer-gateway-events by default.',
  }),
  directUrl: parsed(
    text('URL', { meaning: 'A sidecar that accepts events by POST /events.' }),
    parseHttpUrl,
  ),
  directSecret: secret('SECRET', 'SIGNER_DIRECT_SECRET', "The sidecar's webhook secret"),
  file: text('PATH', { meaning: 'A file to which events are appended as NDJSON.' }),
  drop: chance('an event is dropped'),
  duplicate: chance('an event is sent twice'),
  reorder: chance('two events change places'),
  delayMs: number('N', {
    from: 0,
    to: 2000,
    fallback: 0,
    meaning: 'Longest random delay of an event, 0 to 2000; 0 by default.',
  }),
  seed: integer('N', {
    from: 0,
    to: 2 ** 32 - 1,
    fallback: 1,
    meaning: 'Seed of the faults, to repeat them; 1 by default.',
  }),
  drive: integer('N', {
    from: 1,
    to: 1000,
    meaning: 'Also plays this many gateway sessions against itself, 1 to 1000.',
  }),
  interval: number('SECONDS', {
    from: 0.01,
    to: 3600,
    fallback: 5,
    meaning: 'Pause between two calls of a session; 5 by default.',
  }),
  calls: integer('N', {
    from: 1,
    to: 1_000_000,
    meaning: 'Number of calls of each session, after which it ends; unlimited by default.',
  }),
  authorization: secret(
    'VALUE',
    'SIGNER_AUTHORIZATION',
    'Authorization header of the sessions, such as "Bearer sk_..."',
  ),
  app: text('NAME', { fallback: '', meaning: 'App of the sessions; empty by default.' }),
}
