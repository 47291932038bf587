import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Writable } from 'node:stream'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { createEnvReader } from '../../../../core/lib/env.ts'
import { createLog, silentLog } from '../../../../core/lib/log.ts'
import { createCollector } from '../../../../core/metering/collector/collector.ts'
import { type KafkaConfig, readCollectingConfig } from '../../../../core/metering/config.ts'
import { createKafkaSource } from '../../../../core/metering/collector/kafka.ts'
import { type Broker, startBroker } from '../../../support/deployment/broker.ts'
import { kafkaBrokers } from '../../../support/run/kafka.ts'

describe('settings of a secured broker', () => {
  const read = (env: Record<string, string>) => {
    const reader = createEnvReader({ KAFKA_BROKERS: 'b.example:9093', ...env })
    return { config: readCollectingConfig(reader).kafka, problems: reader.problems }
  }

  it('accept a certificate authority file, and report a bad one', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'tollgate-ca-'))
    const [good, bad] = [join(folder, 'ca.pem'), join(folder, 'bad.pem')]
    await writeFile(good, '-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n')
    await writeFile(bad, 'no certificate')
    expect(read({ KAFKA_TLS: 'on' })).toMatchObject({ config: { tls: { ca: null } }, problems: [] })
    expect(read({ KAFKA_TLS: 'on', KAFKA_CA_FILE: good })).toMatchObject({
      config: { tls: { ca: expect.stringContaining('BEGIN CERTIFICATE') } },
      problems: [],
    })
    expect(read({ KAFKA_TLS: 'on', KAFKA_CA_FILE: bad }).problems).toEqual([
      'KAFKA_CA_FILE does not contain a PEM certificate',
    ])
    expect(read({ KAFKA_TLS: 'on', KAFKA_CA_FILE: `${good}.not` }).problems).toEqual([
      'KAFKA_CA_FILE cannot be read (ENOENT)',
    ])
    expect(read({ KAFKA_CA_FILE: good }).problems).toEqual(['KAFKA_CA_FILE needs KAFKA_TLS=on'])
    await rm(folder, { recursive: true })
  })

  it('require brokers for a collector, and user name and password together', () => {
    expect(read({ KAFKA_BROKERS: '' }).problems).toEqual([
      'KAFKA_BROKERS is required: a collector reads its events from Kafka',
    ])
    expect(read({ KAFKA_USER: 'u' }).problems).toEqual([
      'KAFKA_USER and KAFKA_PASSWORD must be set together',
    ])
  })
})

// Where Kafka is configured, Java is available for a second broker with certificates of its own.
describe.each(kafkaBrokers() === null ? [] : ['a broker of its own'])(
  '%s, with TLS and a login',
  () => {
    let broker: Broker
    let ca: string
    const stops: (() => Promise<void>)[] = []
    beforeAll(async () => {
      broker = await startBroker()
      ca = await readFile(broker.secured.caFile, 'utf8')
    }, 90_000)
    afterEach(async () => {
      for (const stop of stops.splice(0)) await stop()
    })
    afterAll(() => broker?.stop())

    const rightly = (): KafkaConfig => ({
      brokers: broker.secured.brokers,
      topic: 'secured',
      group: 'secured',
      tls: { ca },
      sessionSeconds: 10,
      sasl: { username: broker.secured.user, password: broker.secured.password },
    })
    const positions = { read: async () => new Map<number, bigint>(), rewind: async () => {} }

    const nothing = async (): Promise<never> => {
      throw new Error('nothing comes')
    }

    /** Starts a collector of `config`, and returns it with its log lines. */
    function collect(config: KafkaConfig) {
      const lines: string[] = []
      const sink = new Writable({
        write: (chunk: Buffer, _encoding, done) => {
          lines.push(...chunk.toString().trim().split('\n'))
          done()
        },
      })
      const log = createLog({ level: 'info', name: 'collector' }, sink)
      const collector = createCollector({
        source: createKafkaSource(config, { positions, log }),
        log,
        retryingIngest: { ingestAll: async () => [] },
        prepare: nothing,
        writer: { write: nothing, stop: async () => {} },
        ahead: 1,
      })
      collector.start()
      stops.push(collector.stop)
      return { collector, lines }
    }

    it('connects with the right user name, password and authority', async () => {
      const { collector, lines } = collect(rightly())
      await expect.poll(collector.connected, { timeout: 20_000 }).toBe(true)
      expect(lines.filter((line) => !line.includes('collecting events'))).toEqual([])
    })

    it.each<[what: string, says: RegExp, change: (config: KafkaConfig) => Partial<KafkaConfig>]>([
      [
        'a wrong password',
        /it refuses KAFKA_USER with KAFKA_PASSWORD/,
        () => ({ sasl: { username: broker.secured.user, password: 'hunter2' } }),
      ],
      [
        'an unknown authority',
        /not signed by an authority that is trusted here; .* KAFKA_CA_FILE/,
        () => ({ tls: { ca: null } }),
      ],
      ['no TLS', /whether it requires KAFKA_TLS=on/, () => ({ tls: null })],
      [
        'neither TLS nor a login',
        /it requires TLS, but KAFKA_TLS is off/,
        () => ({ tls: null, sasl: null }),
      ],
      ['no login', /whether it requires .* KAFKA_USER/, () => ({ sasl: null })],
      [
        'TLS on a plain-text port',
        /it does not use TLS, but KAFKA_TLS is on/,
        () => ({ brokers: broker.brokers }),
      ],
      [
        'a login on a port without logins',
        /it accepts no user name on this port/,
        () => ({ brokers: broker.brokers, tls: null }),
      ],
      [
        'a port without a listener',
        /nothing listens at KAFKA_BROKERS/,
        () => ({ brokers: ['127.0.0.1:1'] }),
      ],
    ])('with %s, logs the reason in one line and retries', async (_what, says, change) => {
      const { collector, lines } = collect({ ...rightly(), ...change(rightly()) })
      await expect.poll(() => lines.length, { timeout: 20_000 }).toBeGreaterThan(0)
      await new Promise((resolve) => {
        setTimeout(resolve, 1_500)
      })
      expect(lines).toEqual([expect.stringMatching(says)])
      expect(lines[0]).not.toContain('hunter2')
      expect(lines[0]).toContain('opening it again')
      expect(collector.connected()).toBe(false)
      expect(collector.lagSeconds()).toBeGreaterThan(0)
    })

    it('reconnects after the broker restarts', async () => {
      const { collector } = collect(rightly())
      await expect.poll(collector.connected, { timeout: 20_000 }).toBe(true)
      await broker.kill()
      await expect.poll(collector.connected, { timeout: 30_000 }).toBe(false)
      await broker.start()
      await expect.poll(collector.connected, { timeout: 40_000 }).toBe(true)
    }, 120_000)

    it('fails instead of waiting forever for a connection', async () => {
      const source = createKafkaSource(
        { ...rightly(), brokers: ['127.0.0.1:1'] },
        { positions, log: silentLog() },
      )
      await expect(source.open()).rejects.toThrow(
        'the broker cannot be used: nothing listens at KAFKA_BROKERS',
      )
    })
  },
)
