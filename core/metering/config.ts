import { readFileSync } from 'node:fs'
import type { EnvReader } from '../lib/env.ts'
import type { EthRate } from '../lib/money.ts'
import type { Reloadable } from '../lib/settings/reloadable.ts'
import { type SigningLimits, usualLimits } from './events/parse.ts'
import { parseRate } from './rates/sources.ts'

export interface KafkaConfig {
  readonly brokers: readonly string[]
  readonly topic: string
  readonly group: string
  /** Null for a plain-text connection. `ca` is PEM text that replaces the public authorities. */
  readonly tls: { readonly ca: string | null } | null
  readonly sasl: { readonly username: string; readonly password: Reloadable<string> } | null
  /**
   * How long a dead collector keeps its partitions. Until then neither another collector nor its
   * own restart gets them.
   */
  readonly sessionSeconds: number
}

export interface MeteringConfig {
  /**
   * How tickets reach the deployment, even if another process collects them (docs/decisions/46.md).
   */
  readonly mode: 'stream' | 'direct'
  /** Null if events arrive only by direct calls. */
  readonly kafka: KafkaConfig | null
  readonly rates: {
    readonly fixed: EthRate | null
    readonly urls: readonly string[]
    readonly pollSeconds: number
    readonly maxAgeSeconds: number
    readonly manualMaxAgeSeconds: number
    /**
     * Beyond its maximum age, a rate still serves for bounds: for `graceSeconds`, raised by
     * `marginPercent`.
     */
    readonly graceSeconds: number
    readonly marginPercent: number
  }
  readonly tickets: SigningLimits
  /** How long a ticket may be missing from its session before it counts as lost. */
  readonly lossGraceSeconds: number
}

const defaultRateUrls =
  'https://api.coinbase.com/v2/prices/ETH-USD/spot,https://api.kraken.com/0/public/Ticker?pair=ETHUSD'

/** Declares and reads the metering settings. */
export function readMeteringConfig(env: EnvReader): MeteringConfig {
  const kafka = readKafka(env)
  const collector = env.choice('COLLECTOR', {
    choices: ['on', 'off'],
    fallback: 'on',
    meaning:
      'Whether core itself collects events from Kafka; off if separate collectors (tollgate collector) do.',
  })
  return {
    mode: kafka === null ? 'direct' : 'stream',
    kafka: collector === 'on' ? kafka : null,
    rates: readRates(env),
    tickets: readSigningLimits(env),
    lossGraceSeconds: readLossGrace(env),
  }
}

/** Reads the same settings for a process that only collects. Requires Kafka. */
export function readCollectingConfig(env: EnvReader): MeteringConfig {
  const kafka = readKafka(env)
  if (kafka === null)
    env.problem('KAFKA_BROKERS is required: a collector reads its events from Kafka')
  return {
    mode: 'stream',
    kafka,
    rates: readRates(env),
    tickets: readSigningLimits(env),
    lossGraceSeconds: readLossGrace(env),
  }
}

const readSigningLimits = (env: EnvReader): SigningLimits => ({
  maxAgeDays: env.integer('TICKET_MAX_AGE_DAYS', {
    fallback: String(usualLimits.maxAgeDays),
    min: 1,
    max: 3_650,
    meaning:
      'Highest age of a ticket in days since it was signed; an older one goes to quarantine. Prices can be recorded for up to 35 days more.',
  }),
  maxAheadSeconds: env.integer('TICKET_MAX_AHEAD_SECONDS', {
    fallback: String(usualLimits.maxAheadSeconds),
    min: 1,
    max: 86_400,
    meaning:
      "Most seconds that a ticket's signing time may be ahead of core's clock; a later one goes to quarantine.",
  }),
  maxFeeEth: env.integer('TICKET_MAX_FEE_ETH', {
    fallback: String(usualLimits.maxFeeEth),
    min: 1,
    max: 1_000,
    meaning:
      'Highest fee of one ticket in ETH; a ticket with a higher fee goes to quarantine, so that sums of fees and prices fit their columns.',
  }),
})

const readLossGrace = (env: EnvReader): number =>
  env.integer('LOSS_GRACE_SECONDS', {
    fallback: '300',
    min: 1,
    max: 86_400,
    meaning:
      "How long a gap in a session's sequence numbers may stay open before its tickets count as lost.",
  })

function readKafka(env: EnvReader): KafkaConfig | null {
  const brokers = env.list('KAFKA_BROKERS', {
    meaning:
      'Kafka brokers (host:port, comma list) from which events are collected. When unset, events arrive only at POST /events (direct mode).',
  })
  const topic = env.text('KAFKA_TOPIC', {
    fallback: 'livepeer-gateway-events',
    meaning: "Kafka topic of the signer's events.",
  })
  const group = env.text('KAFKA_GROUP', {
    fallback: 'tollgate-collector',
    meaning: 'Consumer group of the collectors.',
  })
  const tls = readTls(env)
  const username = env.optional('KAFKA_USER', { meaning: 'SASL/PLAIN user name for the brokers.' })
  const password = env.live(
    () =>
      env.optional('KAFKA_PASSWORD', {
        secret: true,
        meaning: 'SASL/PLAIN password for the brokers.',
      }) ?? '',
    Boolean,
  )
  const sessionSeconds = env.integer('KAFKA_SESSION_SECONDS', {
    fallback: '10',
    min: 6,
    max: 300,
    meaning:
      "Silence after which other collectors take over a collector's partitions; after a crash, events wait this long.",
  })
  if ((username === undefined) !== (password() === ''))
    env.problem('KAFKA_USER and KAFKA_PASSWORD must be set together')
  for (const broker of brokers.filter(
    (broker) => !/^[^\s:]+:\d{1,5}$|^\[[0-9a-fA-F:]+\]:\d{1,5}$/.test(broker),
  )) {
    env.problem(`KAFKA_BROKERS must be a comma list of host:port; ${broker} is not one`)
  }
  if (brokers.length === 0) return null
  const sasl = username === undefined ? null : { username, password }
  return { brokers, topic, group, tls, sasl, sessionSeconds }
}

function readTls(env: EnvReader): KafkaConfig['tls'] {
  const tls = env.choice('KAFKA_TLS', {
    choices: ['on', 'off'],
    fallback: 'off',
    meaning: 'Whether connections to the brokers use TLS (1.2 or newer).',
  })
  const file = env.optional('KAFKA_CA_FILE', {
    meaning:
      'PEM file with the certificate authorities of the brokers; it replaces the public ones.',
  })
  if (file === undefined) return tls === 'on' ? { ca: null } : null
  if (tls === 'off') env.problem('KAFKA_CA_FILE needs KAFKA_TLS=on')
  try {
    const ca = readFileSync(file, 'utf8')
    if (!ca.includes('-----BEGIN CERTIFICATE-----'))
      env.problem('KAFKA_CA_FILE does not contain a PEM certificate')
    return { ca }
  } catch (error) {
    env.problem(
      `KAFKA_CA_FILE cannot be read (${error instanceof Error && 'code' in error ? String(error.code) : 'unknown'})`,
    )
    return null
  }
}

function readFixedRate(env: EnvReader): EthRate | null {
  const fixed = env.optional('RATE_FIXED', {
    meaning:
      'Fixed price of one ETH in USD, instead of the rate sources; for tests and demonstrations.',
  })
  if (fixed === undefined) return null
  const rate = parseRate(fixed)
  if (rate === null) env.problem('RATE_FIXED must be a positive decimal of USD for one ETH')
  return rate
}

function readRates(env: EnvReader): MeteringConfig['rates'] {
  const fixed = readFixedRate(env)
  const urls = env.list('RATE_URLS', {
    fallback: defaultRateUrls,
    meaning:
      'Addresses that return the price of one ETH in USD, tried in order (comma list; answers of Coinbase, Kraken or the form {"price"}).',
  })
  const pollSeconds = env.integer('RATE_POLL_SECONDS', {
    fallback: '60',
    min: 1,
    max: 3_600,
    meaning: 'Seconds between two observations of the price.',
  })
  const maxAgeSeconds = env.integer('RATE_MAX_AGE_SECONDS', {
    fallback: '600',
    min: 1,
    max: 86_400,
    meaning:
      'Highest age of an observation in seconds, at the signing time of the ticket that it prices.',
  })
  const manualMaxAgeSeconds = env.integer('RATE_MANUAL_MAX_AGE_SECONDS', {
    fallback: '86400',
    min: 1,
    max: 604_800,
    meaning:
      'Highest age in seconds of a price that an operator recorded; a newer observation replaces it earlier.',
  })
  for (const url of urls.filter((url) => !/^https?:\/\//.test(url) || !URL.canParse(url))) {
    env.problem(`RATE_URLS must be a comma list of http(s) addresses; ${url} is not one`)
  }
  if (maxAgeSeconds < pollSeconds)
    env.problem('RATE_MAX_AGE_SECONDS must not be less than RATE_POLL_SECONDS')
  if (manualMaxAgeSeconds < maxAgeSeconds)
    env.problem('RATE_MANUAL_MAX_AGE_SECONDS must not be less than RATE_MAX_AGE_SECONDS')
  const ages = { maxAgeSeconds, manualMaxAgeSeconds }
  return { fixed, urls, pollSeconds, ...ages, ...readBoundRates(env) }
}

const readBoundRates = (env: EnvReader) => ({
  marginPercent: env.integer('RATE_MARGIN_PERCENT', {
    fallback: '10',
    min: 0,
    max: 1_000,
    meaning:
      'Percent by which the last price is raised while no usable price exists: for bounds of calls, and for bounds of tickets that wait for a price.',
  }),
  graceSeconds: env.integer('RATE_GRACE_SECONDS', {
    fallback: '3600',
    min: 0,
    max: 86_400,
    meaning:
      'Seconds beyond RATE_MAX_AGE_SECONDS for which the last price, raised by RATE_MARGIN_PERCENT, still bounds calls; after that calls are refused.',
  }),
})
