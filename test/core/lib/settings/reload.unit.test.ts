import { describe, expect, it } from 'vitest'
import { createEnvReader } from '../../../../core/lib/env.ts'
import { readCoreConfig } from '../../../../core/config.ts'
import { withoutPassword } from '../../../../core/lib/settings/database-password.ts'
import { applyReload } from '../../../../core/lib/settings/reload.ts'
import { currentValue, deriveLive } from '../../../../core/lib/settings/reloadable.ts'
import { coreSecrets } from '../../../support/deployment/parts.ts'

const meaning = 'for the test'

const pick = (env: Readonly<Record<string, string>>, ...names: readonly string[]) =>
  Object.fromEntries(names.map((name) => [name, env[name] ?? '']))

/** Reads settings as a process does: a live list, a live number, and a fixed text. */
function read(env: Readonly<Record<string, string>>) {
  const reader = createEnvReader(env)
  const secrets = reader.live(() => reader.list('SECRETS', { secret: true, meaning }))
  const limit = reader.live(() =>
    reader.integer('LIMIT', { meaning, fallback: '5', min: 1, max: 10 }),
  )
  const host = reader.text('HOST', { meaning, fallback: 'localhost' })
  const both = reader.live(() => reader.text('BOTH', { meaning, fallback: 'a' }))
  reader.text('BOTH', { meaning, fallback: 'a' })
  return { reader, secrets, limit, host, both }
}

describe('applyReload', () => {
  it('replaces live values, and returns the names of changed settings', () => {
    const { reader, secrets, limit, host } = read({ SECRETS: 'one' })
    const next = read({ SECRETS: 'two,one', HOST: 'elsewhere' })
    expect(applyReload(reader, next.reader)).toEqual({
      reloaded: ['SECRETS'],
      needRestart: ['HOST'],
    })
    expect([secrets(), limit(), host]).toEqual([['two', 'one'], 5, 'localhost'])
  })

  it('returns a setting that needs a restart each time, and a reloaded one once', () => {
    const { reader, limit } = read({})
    const env = { LIMIT: '7', HOST: 'elsewhere' }
    applyReload(reader, read(env).reader)
    expect(applyReload(reader, read(env).reader)).toEqual({ reloaded: [], needRestart: ['HOST'] })
    expect(applyReload(reader, read({}).reader)).toEqual({ reloaded: ['LIMIT'], needRestart: [] })
    expect(limit()).toBe(5)
  })

  it('returns a setting as one that needs a restart if it is also read outside of a live value', () => {
    const { reader } = read({})
    expect(applyReload(reader, read({ BOTH: 'b' }).reader).needRestart).toEqual(['BOTH'])
  })

  it('replaces the password of an address, but not its host', () => {
    const reader = (url: string) => {
      const env = createEnvReader({ URL: url })
      const live = env.live(
        () => env.url('URL', { meaning, schemes: ['postgres'] }) ?? '',
        withoutPassword,
      )
      return { env, live }
    }
    const { env, live } = reader('postgres://me:one@db/x')
    const renewed = reader('postgres://me:two@db/x')
    expect(applyReload(env, renewed.env)).toEqual({ reloaded: ['URL'], needRestart: [] })
    const moved = reader('postgres://me:two@other/x')
    expect(applyReload(env, moved.env)).toEqual({ reloaded: [], needRestart: ['URL'] })
    expect(live()).toBe('postgres://me:two@db/x')
  })

  it('reloads the secrets of other services, but not that there is one', () => {
    const names = [
      'STRIPE_SECRET_KEY',
      'OPENMETER_API_KEY',
      'KAFKA_PASSWORD',
      'AUTH0_CLIENT_SECRET',
    ]
    const settings = (mark: string): Record<string, string> => ({
      ...coreSecrets(),
      DATABASE_URL: 'postgres://localhost/x',
      CORE_TOKEN: 't'.repeat(32),
      STRIPE_SECRET_KEY: `sk_live_${mark.repeat(20)}`,
      OPENMETER_URL: 'http://localhost:1',
      OPENMETER_API_KEY: mark,
      KAFKA_BROKERS: 'localhost:1',
      KAFKA_USER: 'me',
      KAFKA_PASSWORD: mark,
      AUTH0_CLIENT_SECRET: mark,
    })
    const core = (env: Readonly<Record<string, string>>) => {
      const reader = createEnvReader(env)
      return { reader, config: readCoreConfig(reader) }
    }
    const fixed = settings('a')
    const { reader, config } = core(fixed)
    expect(reader.problems).toEqual([])
    const next = { ...settings('b'), ...pick(fixed, 'SECRET_PEPPERS', 'KEY_ENCRYPTION_KEY') }
    expect(applyReload(reader, core(next).reader)).toEqual({
      reloaded: names.toSorted(),
      needRestart: [],
    })
    expect(currentValue(config.metering.kafka?.sasl?.password)).toBe('b')
    const { AUTH0_CLIENT_SECRET: _removed, ...without } = next
    expect(applyReload(reader, core(without).reader).needRestart).toEqual(['AUTH0_CLIENT_SECRET'])
  })

  it('needs a restart for a setting that only the new settings read', () => {
    const reader = createEnvReader({})
    const next = createEnvReader({ LIMIT: '7' })
    next.live(() => next.integer('LIMIT', { meaning, fallback: '5', min: 1, max: 10 }))
    expect(applyReload(reader, next).needRestart).toEqual(['LIMIT'])
  })
})

describe('deriveLive', () => {
  it('derives again only after a reload of its setting', () => {
    const { reader, secrets } = read({ SECRETS: 'one' })
    let count = 0
    const length = deriveLive(secrets, (all) => {
      count += 1
      return all.length
    })
    applyReload(reader, read({ SECRETS: 'one', LIMIT: '6' }).reader)
    expect([length(), length(), count]).toEqual([1, 1, 1])
    applyReload(reader, read({ SECRETS: 'two,one', LIMIT: '6' }).reader)
    expect([length(), length(), count]).toEqual([2, 2, 2])
  })

  it('accepts a fixed value', () => {
    expect(deriveLive([1, 2], (all) => all.length)()).toBe(2)
    expect(currentValue('fixed')).toBe('fixed')
  })
})
