import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { inject } from 'vitest'
import { type Service, startService } from '../../../deploy/all-in-one/service.ts'
import { createTopic, kafkaBrokers } from '../run/kafka.ts'
import { createDatabase } from '../run/postgres.ts'
import { secretSettings, registerSecret } from '../run/secrecy.ts'

export interface TestService {
  readonly service: Service
  readonly env: Readonly<Record<string, string>>
  /** The topic that it collects from; null in direct mode. */
  readonly topic: string | null
  /** Stops it and starts it again on the same data. */
  restart(): Promise<Service>
  /** Stops it and removes all its data. */
  stop(): Promise<void>
}

/**
 * Starts the all-in-one service on the parts of this vitest project: its own database, free ports,
 * a fixed rate of 3000 USD for one ETH. `more` adds settings.
 */
export async function startTestService(
  more: Readonly<Record<string, string>> = {},
): Promise<TestService> {
  const { redisUrl } = inject('parts')
  const dataDir = await mkdtemp(join(tmpdir(), 'tollgate-e2e-'))
  const database = await createDatabase()
  const brokers = inject('parts').kafkaBrokers
  const topic = brokers ? await createTopic(4) : null
  const env = {
    TOLLGATE_DATA_DIR: dataDir,
    DATABASE_URL: database.url,
    RATE_FIXED: '3000',
    RATE_LIMITS: 'off',
    LOG_LEVEL: 'debug',
    CORE_PORT: '0',
    PLATFORM_PORT: '0',
    BUILDER_PORT: '0',
    SIDECAR_PORT: '0',
    ADMIN_PORT: '0',
    ...(redisUrl === null ? {} : { REDIS_URL: redisUrl }),
    ...(topic === null
      ? {}
      : {
          KAFKA_BROKERS: (kafkaBrokers() ?? []).join(','),
          KAFKA_TOPIC: topic,
          KAFKA_GROUP: topic,
        }),
    ...more,
  }
  secretSettings(env)
  let service = await startService(env)
  const { webhookSecret, m2mClientSecret, ownerPassword } = service.quickstart
  for (const secret of [webhookSecret, m2mClientSecret, ownerPassword]) registerSecret(secret ?? '')

  async function restart(): Promise<Service> {
    await service.stop()
    service = await startService(env)
    return service
  }

  async function stop(): Promise<void> {
    await service.stop()
    await database.drop()
    await rm(dataDir, { recursive: true, force: true })
  }

  return {
    get service() {
      return service
    },
    env,
    topic,
    restart,
    stop,
  }
}
