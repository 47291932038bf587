import { existsSync } from 'node:fs'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { parse } from 'yaml'
import { declaredSettings, readSettings } from '../../../deploy/cli/settings.ts'
import { readEnvironment } from '../../../core/lib/settings/environment.ts'
import { secretNames } from '../../../core/lib/settings/names.ts'
import { unknownSettings } from '../../../core/lib/settings/unknown.ts'
import { tollgate } from '../cli/support.ts'
import { type ComposeService, interpolate, readComposeFolder } from './compose-file.ts'
import { startSigner } from './signer-entrypoint.ts'

const processes = ['core', 'gateway', 'sidecar', 'collector']
let parent: string
let folder: string
let compose: ReturnType<typeof readComposeFolder>
beforeAll(async () => {
  parent = await mkdtemp(join(tmpdir(), 'tollgate-compose-'))
  folder = join(parent, 'deployment')
  await tollgate('init', '--dir', folder, '--public-url', 'https://pay.example')
  compose = readComposeFolder(folder)
})
afterAll(() => rm(parent, { recursive: true, force: true }))

const service = (name: string): ComposeService => {
  const match = compose.services.find((each) => each.name === name)
  if (!match) throw new Error(`no service ${name}`)
  return match
}

/** The service's variables, with paths of secrets as on this machine. */
const variables = (name: string): Record<string, string> =>
  Object.fromEntries(
    Object.entries(service(name).environment).map(([key, value]) => {
      const [, secret] = /^\/run\/secrets\/(.+)$/.exec(value) ?? []
      return [key, secret === undefined ? value : (compose.secretFiles.get(secret) ?? '')]
    }),
  )

describe('compose.yaml', () => {
  it('has all processes, their parts, and a one-shot migration', () => {
    const names = compose.services.map(({ name }) => name)
    const parts = ['postgres', 'redis', 'kafka', 'signer', 'prometheus', 'grafana']
    expect(names.toSorted()).toEqual([...processes, ...parts, 'migrate', 'tollgate'].toSorted())
    expect(compose.services.filter(({ isOurs }) => isOurs).map(({ name }) => name)).toEqual(
      expect.arrayContaining([...processes, 'migrate', 'tollgate']),
    )
    for (const name of ['core', 'collector']) {
      expect(service(name).environment['MIGRATE']).toBe('off')
      expect(service(name).definition['depends_on']).toMatchObject({
        migrate: { condition: 'service_completed_successfully' },
      })
    }
  })

  it('sets only settings that the process reads', () => {
    const declared = new Map(declaredSettings().map((setting) => [setting.name, setting]))
    for (const name of processes)
      for (const key of Object.keys(service(name).environment)) {
        const setting = declared.get(key) ?? declared.get(key.replace(/_FILE$/, ''))
        expect([name, key, setting?.processes]).toEqual([name, key, expect.arrayContaining([name])])
        // Variables of a container are visible to every user of Docker. This URL has no password.
        const isOpen = setting?.secret === true && key !== 'REDIS_URL' && !key.endsWith('_FILE')
        expect([name, key, isOpen]).toEqual([name, key, false])
      }
  })

  it.each(processes)('passes the checks of %s, without a warning', async (name) => {
    const env = variables(name)
    const { problems, warnings } = readSettings(await readEnvironment(env), name)
    expect([problems, warnings, unknownSettings(env)]).toEqual([[], [], []])
  })

  it('gives each process only the secrets that it names', () => {
    const names = new Set<string>(secretNames.map((name) => `${name}_FILE`))
    for (const { name, isOurs, environment, secrets } of compose.services) {
      if (!isOurs) continue
      const paths = Object.entries(environment).flatMap(([key, value]) =>
        names.has(key) ? [value.replace('/run/secrets/', '')] : [],
      )
      expect([name, secrets.toSorted()]).toEqual([name, paths.toSorted()])
    }
    for (const [name, file] of compose.secretFiles)
      expect([name, existsSync(file)]).toEqual([name, true])
  })

  it('lets the processes find each other', async () => {
    const { env } = await readEnvironment(variables('core'))
    expect(env['PUBLIC_URL']).toBe('https://pay.example')
    const password = await readFile(compose.secretFiles.get('database-password') ?? '', 'utf8')
    expect(new URL(env['DATABASE_URL'] ?? '')).toMatchObject({
      hostname: 'postgres',
      password: password.trim(),
    })
    const pairs: [string, string][] = [
      ['core', 'postgres'],
      ['core', 'redis'],
      ['gateway', 'core'],
      ['sidecar', 'core'],
      ['collector', 'kafka'],
      ['signer', 'kafka'],
      ['signer', 'sidecar'],
      ['prometheus', 'core'],
      ['prometheus', 'sidecar'],
      ['prometheus', 'gateway'],
      ['prometheus', 'collector'],
    ]
    for (const [from, to] of pairs) {
      const shared = service(from).networks.filter((name) => service(to).networks.includes(name))
      expect([from, to, shared.length > 0]).toEqual([from, to, true])
    }
    // The signer holds keys and reaches neither the database nor core.
    for (const name of ['postgres', 'redis', 'core'])
      expect(service(name).networks.some((each) => service('signer').networks.includes(each))).toBe(
        false,
      )
  })

  it('wires the signer to the sidecar, the secret and the topic', () => {
    const { command, definition } = service('signer')
    const declared = declaredSettings().find(({ name }) => name === 'KAFKA_TOPIC')
    expect(command).toEqual(
      expect.arrayContaining([
        '-remoteSigner',
        '-remoteSignerWebhookUrl=http://sidecar:8090/authorize',
        '-monitor',
        '-kafkaBootstrapServers=kafka:9092',
        `-kafkaGatewayTopic=${declared?.fallback}`,
      ]),
    )
    expect(JSON.stringify(definition['entrypoint'])).toContain(
      'Authorization:Bearer $(cut -d, -f1 /run/secrets/webhook-secret)',
    )
    expect(definition['secrets']).toEqual(['webhook-secret'])
    expect(service('signer').environment).toEqual({ LP_ETHURL: '' })
    expect(command).toContain('-ethKeystorePath=/signer/keystore')
  })

  it('starts livepeer with the first secret, only if the folder keystore has a key file', async () => {
    const entrypoint = service('signer').definition['entrypoint']
    const script = Array.isArray(entrypoint) ? entrypoint[2] : ''
    const signer = join(folder, 'signer')
    const secret = join(parent, 'rotated')
    await writeFile(secret, 'new,old')
    const start = () => startSigner(String(script), { signer, secret })
    const refusal = { code: 1, text: expect.stringContaining('no key file') }
    expect(start()).toEqual(refusal)
    await writeFile(join(signer, 'keystore/UTC--key'), '{}')
    expect(start()).toEqual({ code: 0, text: 'Authorization:Bearer new -one -two\n' })
    // From a file in place of the folder, livepeer would read the account's address only.
    await rm(join(signer, 'keystore'), { recursive: true })
    await writeFile(join(signer, 'keystore'), '{}')
    expect(start()).toEqual(refusal)
  })

  it('runs our processes without root, write access and capabilities', () => {
    const ours = compose.services.filter(({ isOurs }) => isOurs)
    for (const { name, definition } of ours)
      expect([name, definition]).toMatchObject([
        name,
        {
          read_only: true,
          cap_drop: ['ALL'],
          security_opt: ['no-new-privileges:true'],
          user: expect.stringMatching(/^[1-9]\d*:/),
        },
      ])
  })

  it('opens ports on this machine only', () => {
    for (const { definition } of compose.services)
      for (const port of Array.isArray(definition['ports']) ? definition['ports'] : [])
        expect(port).toMatch(/^127\.0\.0\.1:\d+:\d+$/)
  })

  it('runs in direct mode without the profile kafka', async () => {
    const active = (profiles: string): string[] =>
      compose.services
        .filter(
          (each) =>
            each.profiles.length === 0 ||
            each.profiles.some((name) => profiles.split(',').includes(name)),
        )
        .map(({ name }) => name)
    expect(active(compose.env['COMPOSE_PROFILES'] ?? '')).toEqual(
      expect.arrayContaining(['kafka', 'collector']),
    )
    const direct = join(parent, 'direct')
    await tollgate('init', '--dir', direct, '--without-kafka')
    const profiles = readComposeFolder(direct).env['COMPOSE_PROFILES'] ?? ''
    expect(active(profiles).toSorted()).toEqual([
      'core',
      'gateway',
      'grafana',
      'migrate',
      'postgres',
      'prometheus',
      'redis',
      'sidecar',
    ])
    // Pushed events wait in the spool while core is unavailable.
    expect(service('sidecar').environment['SPOOL_DIR']).toBe('/var/lib/tollgate/spool')
  })

  it('mounts files that exist', () => {
    const sources = compose.services.flatMap(({ definition }) =>
      (Array.isArray(definition['volumes']) ? definition['volumes'] : []).flatMap((volume) => {
        const [from = ''] = String(volume).split(':')
        return from.startsWith('.') ? [from] : []
      }),
    )
    expect(sources.length).toBeGreaterThan(6)
    for (const path of sources) expect([path, existsSync(join(folder, path))]).toEqual([path, true])
  })

  it('is scraped at the admin port of the image', async () => {
    const file = parse(await readFile(join(folder, 'prometheus.yml'), 'utf8'))
    expect(file.scrape_configs[0]).toMatchObject({
      job_name: 'tollgate',
      static_configs: [{ targets: ['core:9464', 'gateway:9464', 'sidecar:9464'] }],
      dns_sd_configs: [{ names: ['collector'], type: 'A', port: 9464 }],
      relabel_configs: [{ source_labels: ['__meta_dns_name'], target_label: 'part' }],
    })
  })

  it('mounts the dashboards where Grafana reads them, with a Prometheus at its address', async () => {
    const provisioning = join(folder, 'grafana/provisioning')
    const dashboards = parse(await readFile(join(provisioning, 'dashboards/tollgate.yml'), 'utf8'))
    expect(service('grafana').definition['volumes']).toContain(
      `./grafana/dashboards:${dashboards.providers[0].options.path}:ro`,
    )
    const datasources = parse(
      await readFile(join(provisioning, 'datasources/prometheus.yml'), 'utf8'),
    )
    expect(datasources.datasources[0].url).toBe('http://prometheus:9090')
    expect(service('grafana').networks).toEqual(service('prometheus').networks)
  })

  it('has a settings file that every process accepts', async () => {
    const TOLLGATE_CONFIG = join(folder, 'tollgate.yaml')
    expect(await readEnvironment({ TOLLGATE_CONFIG })).toMatchObject({ env: { TOLLGATE_CONFIG } })
    const examples = (await readFile(TOLLGATE_CONFIG, 'utf8')).matchAll(/^# ([A-Z_]+): /gm)
    const names = declaredSettings().map(({ name }) => name)
    for (const [, name = ''] of examples) expect(names).toContain(name)
  })
})

it('interpolates as Docker Compose does', () => {
  expect(interpolate('a ${X:-1} ${Y:-} $$Z', { X: '2' })).toBe('a 2  $Z')
  expect(() => interpolate('${X}', {})).toThrow('X has no value')
  expect(() => interpolate('$X', {})).toThrow('unknown variable form')
})
