import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createEnvReader } from '../../../../core/lib/env.ts'
import { readEnvironment } from '../../../../core/lib/settings/environment.ts'

let folder: string
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'tollgate-environment-'))
})
afterAll(() => rm(folder, { recursive: true }))

async function write(name: string, text: string): Promise<string> {
  const path = join(folder, name)
  await writeFile(path, text)
  return path
}

const problemsOf = (env: Readonly<Record<string, string>>): Promise<string[]> =>
  readEnvironment(env).then(
    () => [],
    (error: AggregateError) => error.errors.map(({ message }: Error) => message),
  )

describe('readEnvironment', () => {
  it('takes settings from the file that TOLLGATE_CONFIG names, as they are written', async () => {
    const path = await write(
      'tollgate.yaml',
      'RATE_FIXED: 3000.100000000000000000001\nplatform_port: 9080\nKAFKA_BROKERS:\n  - a:1\n  - b:2\nHOST:\n# text\n',
    )
    const { env, files } = await readEnvironment({ TOLLGATE_CONFIG: path, PLATFORM_PORT: '7000' })
    expect(env).toEqual({
      TOLLGATE_CONFIG: path,
      RATE_FIXED: '3000.100000000000000000001',
      PLATFORM_PORT: '7000',
      KAFKA_BROKERS: 'a:1,b:2',
    })
    expect(files).toEqual({ RATE_FIXED: path, KAFKA_BROKERS: path })
    const reader = createEnvReader(env, { files })
    reader.text('RATE_FIXED', { fallback: '', meaning: '' })
    reader.port('PLATFORM_PORT', { fallback: '8080', meaning: '' })
    expect(reader.settings.map(({ source }) => source)).toEqual([path, 'environment'])
  })

  it('takes a secret from the file that NAME_FILE names, without its line break', async () => {
    const secret = await write('token', 'a-token,another-token\n')
    const path = await write(
      'secrets.yaml',
      `CORE_TOKEN_FILE: ${secret}\nDATABASE_URL: postgres://a\n`,
    )
    const url = await write('url', 'postgres://b')
    expect(await readEnvironment({ TOLLGATE_CONFIG: path, DATABASE_URL_FILE: url })).toEqual({
      env: {
        TOLLGATE_CONFIG: path,
        CORE_TOKEN: 'a-token,another-token',
        DATABASE_URL: 'postgres://b',
      },
      files: { CORE_TOKEN: secret, DATABASE_URL: url },
    })
    const { env } = await readEnvironment({ TOLLGATE_CONFIG: path, CORE_TOKEN: 'own' })
    expect(env['CORE_TOKEN']).toBe('own')
  })

  it('leaves a setting alone whose own name ends in _FILE', async () => {
    expect((await readEnvironment({ KAFKA_CA_FILE: '/ca.pem' })).env).toEqual({
      KAFKA_CA_FILE: '/ca.pem',
    })
  })

  it('works without a settings file, unless one is named', async () => {
    expect(await readEnvironment({})).toEqual({ env: {}, files: {} })
    expect(await problemsOf({ TOLLGATE_CONFIG: '/none/tollgate.yaml' })).toEqual([
      expect.stringMatching(/^TOLLGATE_CONFIG: cannot read its file: ENOENT.*none\/tollgate.yaml/),
    ])
  })

  it.each([
    ['RATE_FIXD: 3000', /RATE_FIXD is not a setting; did you mean RATE_FIXED\?$/],
    ['TOLLGATE_CONFIG: other.yaml', /TOLLGATE_CONFIG is not a setting/],
    ['UNPAID_NETWORK_USD: 5', /UNPAID_NETWORK_USD is a setting of an earlier release; remove it/],
    ['HOST: a\nhost: b', /HOST is set twice$/],
    ['HOST: a\nHOST: b', /line 2: is not YAML \(DUPLICATE_KEY\)$/],
    ['HOST:\n  nested: text', /HOST must be a value or a list of values$/],
    ['HOST:\n  - [text]', /HOST must be a value or a list of values$/],
    ['- HOST', /must hold a mapping of settings/],
    ['just text', /must hold a mapping of settings/],
    ['HOST: a\n  PORT: [', /line \d: is not YAML/],
    [`HOST: ${'x'.repeat(1024 * 1024)}`, /is larger than 1024 KiB$/],
    [
      `a: &a [x,x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\nHOST: [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b,*b]`,
      /has too many aliases$/,
    ],
  ])('refuses a settings file: %.40s', async (text, message) => {
    const path = await write('wrong.yaml', text)
    expect(await problemsOf({ TOLLGATE_CONFIG: path })).toEqual([expect.stringMatching(message)])
  })

  it('reports every problem at once, and no value', async () => {
    const empty = await write('empty', '\n')
    const large = await write('large', 'secret-value'.repeat(10_000))
    const problems = await problemsOf({
      CORE_TOKEN_FILE: empty,
      WEBHOOK_SECRET_FILE: large,
      SECRET_PEPPERS_FILE: join(folder, 'none'),
      DATABASE_URL: 'postgres://secret-value',
      DATABASE_URL_FILE: empty,
    })
    expect(problems.toSorted()).toEqual([
      `CORE_TOKEN_FILE: ${empty} is empty`,
      'DATABASE_URL and DATABASE_URL_FILE are both set; remove one of them',
      expect.stringMatching(/^SECRET_PEPPERS_FILE: cannot read its file: ENOENT/),
      `WEBHOOK_SECRET_FILE: ${large} is larger than 64 KiB`,
    ])
    expect(problems.join()).not.toContain('secret-value')
  })
})
