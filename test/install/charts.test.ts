import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { parse, parseAllDocuments } from 'yaml'
import { newSecret } from '../../core/lib/crypto.ts'
import { isObject, readText } from '../../core/lib/json.ts'
import { readEnvironment } from '../../core/lib/settings/environment.ts'
import { unknownSettings } from '../../core/lib/settings/unknown.ts'
import { declaredSettings, processNames, readSettings } from '../../deploy/cli/settings.ts'
import { tollgate } from '../deploy/cli/support.ts'
import { startSigner } from '../deploy/install/signer-entrypoint.ts'
import { programPath, run, schemaFolder } from './chart-tools.ts'

const root = join(import.meta.dirname, '../..')
const chart = join(root, 'deploy/helm/tollgate')
const release = 'pay'
const sets = ['minimal', 'signer', 'large']
const kinds = [
  'apps/v1/Deployment',
  'apps/v1/StatefulSet',
  'autoscaling/v2/HorizontalPodAutoscaler',
  'batch/v1/Job',
  'core/v1/Service',
  'networking.k8s.io/v1/Ingress',
  'networking.k8s.io/v1/NetworkPolicy',
  'policy/v1/PodDisruptionBudget',
]
const buildMs = 45 * 60_000

interface Container {
  readonly name: string
  readonly image: string
  readonly command?: readonly string[]
  readonly args: readonly string[]
  readonly env?: readonly { readonly name: string; readonly value: string }[]
  readonly volumeMounts?: readonly { readonly name: string }[]
  readonly ports?: readonly { readonly name: string }[]
  readonly securityContext: object
  readonly startupProbe?: object
  readonly livenessProbe?: object
  readonly readinessProbe?: object
  readonly resources: { readonly requests: object; readonly limits: object }
}
interface Manifest {
  readonly kind: string
  readonly metadata: {
    readonly name: string
    readonly annotations?: Readonly<Record<string, string>>
  }
  readonly spec: Spec
}

type Labels = Readonly<Record<string, string>>

/** Fields of all kinds that the tests read; kubeconform checks their presence. */
interface Spec {
  readonly replicas?: number
  readonly selector: Labels & { readonly matchLabels: Labels }
  readonly podSelector: { readonly matchLabels: Labels }
  readonly scaleTargetRef: { readonly kind: string; readonly name: string }
  readonly type?: string
  readonly externalTrafficPolicy?: string
  readonly ports: readonly { readonly targetPort: string }[]
  readonly egress: readonly { readonly ports: readonly { readonly port: number }[] }[]
  readonly ingress: readonly { readonly ports: readonly { readonly port: string }[] }[]
  readonly template: {
    readonly metadata: { readonly labels: Labels }
    readonly spec: {
      readonly containers: readonly Container[]
      readonly volumes?: readonly { readonly name: string }[]
      readonly nodeSelector?: Labels
    }
  }
}

let [helm, kubeconform, schemas, folder] = ['', '', '', '']
const rendered = new Map<string, Manifest[]>()
const valuesOf = (set: string): string => join(import.meta.dirname, 'charts', `${set}.yaml`)

async function render(...options: string[]): Promise<string> {
  const base = ['template', release, chart, '--kube-version', '1.30.0', '--namespace', 'pay']
  const capabilities = ['--api-versions', 'monitoring.coreos.com/v1']
  const { stdout } = await run(helm, [...base, ...capabilities, ...options], {
    maxBuffer: 16 * 1024 * 1024,
  })
  return stdout
}

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'tollgate-charts-'))
  helm = await programPath('helm')
  kubeconform = await programPath('kubeconform')
  schemas = await schemaFolder(kinds)
  for (const set of sets) {
    const text = await render('--values', valuesOf(set))
    await writeFile(join(folder, `${set}.yaml`), text)
    rendered.set(set, readManifests(text))
  }
}, buildMs)
afterAll(() => rm(folder, { recursive: true, force: true }))

const isManifest = (value: unknown): value is Manifest => isObject(value) && 'kind' in value

const readManifests = (text: string): Manifest[] =>
  parseAllDocuments(text)
    .map((document): unknown => document.toJS())
    .filter(isManifest)

const manifests = (set: string, ...names: readonly string[]): Manifest[] =>
  (rendered.get(set) ?? []).filter(({ kind }) => names.includes(kind))

const workloads = (set: string): Manifest[] => manifests(set, 'Deployment', 'StatefulSet', 'Job')

const containersOf = ({ spec }: Manifest): readonly Container[] => spec.template.spec.containers

const labelsOf = ({ spec }: Manifest): Labels => spec.template.metadata.labels

const selects = (selector: Labels, labels: Labels) =>
  Object.entries(selector).every(([name, value]) => labels[name] === value)

/** The variables of a container, with each secret in a file of the test. */
async function environmentOf({ env = [] }: Container): Promise<Record<string, string>> {
  const variables: Record<string, string> = {}
  for (const { name, value } of env) {
    const isFile = value.startsWith('/run/secrets/')
    const path = join(folder, name)
    if (isFile) await writeFile(path, sampleSecret(name.replace(/_FILE$/, '')))
    variables[name] = isFile ? path : value
  }
  return variables
}

function sampleSecret(name: string): string {
  if (name === 'DATABASE_URL' || name === 'DATABASE_DIRECT_URL')
    return `postgres://tollgate:${newSecret('')}@db/tollgate`
  if (name === 'REDIS_URL') return 'redis://redis:6379'
  if (name === 'SECRET_PEPPERS') return `p1:${newSecret('')}`
  if (name === 'STRIPE_SECRET_KEY') return newSecret('sk_live_')
  return name.startsWith('STRIPE_') ? newSecret('whsec_') : newSecret('')
}

describe('the chart', () => {
  it.each(sets)('passes helm lint with the values of %s', async (set) => {
    const { stdout } = await run(helm, ['lint', '--strict', chart, '--values', valuesOf(set)])
    expect(stdout).toContain('1 chart(s) linted, 0 chart(s) failed')
  })

  it.each(sets)('renders valid manifests with the values of %s', async (set) => {
    const { stdout } = await run(kubeconform, [
      '-strict',
      '-summary',
      // The operator's own resources have no schema here.
      '-skip=ServiceMonitor,PrometheusRule',
      `-schema-location=${schemas}`,
      join(folder, `${set}.yaml`),
    ])
    expect(stdout).toMatch(/Valid: [1-9]\d*, Invalid: 0, Errors: 0/)
  })

  it('is refused by kubeconform if a field has a wrong name', async () => {
    const text = await readFile(join(folder, 'minimal.yaml'), 'utf8')
    const path = join(folder, 'wrong.yaml')
    await writeFile(path, text.replace('maxUnavailable: 1', 'maxUnavailables: 1'))
    await expect(run(kubeconform, ['-strict', '-schema-location', schemas, path])).rejects.toThrow(
      'Command failed',
    )
  })

  it.each(sets)('sets only settings that the process accepts (%s)', async (set) => {
    const declared = new Map(declaredSettings().map((setting) => [setting.name, setting]))
    const names: string[] = []
    for (const container of workloads(set).flatMap(containersOf)) {
      const [process = ''] = container.args
      if (container.name === 'signer') continue
      const env = await environmentOf(container)
      const unknown = Object.keys(env).filter((name) => !declared.has(name.replace(/_FILE$/, '')))
      expect([process, unknown]).toEqual([process, []])
      names.push(process)
      if (!processNames.includes(process)) continue
      const { problems, warnings } = readSettings(await readEnvironment(env), process)
      expect([process, problems, warnings, unknownSettings(env)]).toEqual([process, [], [], []])
    }
    expect(names).toEqual(expect.arrayContaining(['core', 'gateway', 'sidecar', 'migrate']))
    expect(names.includes('collector')).toBe(set !== 'minimal')
  })

  it.each(sets)('probes and restricts every container (%s)', (set) => {
    for (const workload of workloads(set)) {
      expect(workload.spec.template.spec).toMatchObject({
        automountServiceAccountToken: false,
        securityContext: { runAsNonRoot: true, seccompProfile: { type: 'RuntimeDefault' } },
      })
      for (const container of containersOf(workload)) {
        const { securityContext, resources } = container
        const probes = [container.startupProbe, container.livenessProbe, container.readinessProbe]
        expect(securityContext).toEqual({
          allowPrivilegeEscalation: false,
          readOnlyRootFilesystem: true,
          capabilities: { drop: ['ALL'] },
        })
        expect(Object.keys(resources.limits)).toContain('memory')
        const isJob = workload.kind === 'Job'
        expect(probes.filter((probe) => probe !== undefined)).toHaveLength(isJob ? 0 : 3)
      }
    }
  })

  it.each(sets)('has a budget, a policy and replicas for each process (%s)', (set) => {
    const budgets = manifests(set, 'PodDisruptionBudget')
    const policies = manifests(set, 'NetworkPolicy')
    const scaled = manifests(set, 'HorizontalPodAutoscaler').map(({ spec }) => spec)
    for (const workload of workloads(set)) {
      const labels = labelsOf(workload)
      const covers = (selector: { readonly matchLabels: Labels }): boolean =>
        selects(selector.matchLabels, labels)
      expect(policies.filter(({ spec }) => covers(spec.podSelector))).toHaveLength(1)
      if (workload.kind === 'Job') continue
      expect(covers(workload.spec.selector)).toBe(true)
      expect(budgets.filter(({ spec }) => covers(spec.selector))).toHaveLength(1)
      const { kind, metadata } = workload
      const targets = scaled.filter(({ scaleTargetRef: target }) => target.name === metadata.name)
      // With both, each deployment would undo the autoscaler's decision.
      expect(targets).toHaveLength(workload.spec.replicas === undefined ? 1 : 0)
      for (const { scaleTargetRef } of targets) expect(scaleTargetRef.kind).toBe(kind)
    }
    const autoscaled = scaled.map(({ scaleTargetRef }) => scaleTargetRef.name)
    expect(autoscaled.toSorted()).toEqual(
      set === 'large' ? [] : [`${release}-gateway`, `${release}-sidecar`],
    )
  })

  it.each(sets)('names ports that exist in services and policies (%s)', (set) => {
    const rules = [...manifests(set, 'Service'), ...manifests(set, 'NetworkPolicy')]
    for (const { kind, metadata, spec } of rules) {
      const selector = kind === 'Service' ? spec.selector : spec.podSelector.matchLabels
      const pods = workloads(set).filter((workload) => selects(selector, labelsOf(workload)))
      const ports = pods
        .flatMap(containersOf)
        .flatMap((container) => (container.ports ?? []).map(({ name }) => name))
      const named =
        kind === 'Service'
          ? spec.ports.map(({ targetPort }) => targetPort)
          : spec.ingress.flatMap(({ ports: open }) => open.map(({ port }) => port))
      expect([metadata.name, ports]).toEqual([metadata.name, expect.arrayContaining(named)])
    }
  })

  it.each(sets)('migrates before an installation and an upgrade (%s)', (set) => {
    const [job, ...others] = manifests(set, 'Job')
    expect(others).toEqual([])
    expect(job?.metadata.annotations).toMatchObject({ 'helm.sh/hook': 'pre-install,pre-upgrade' })
    for (const name of ['core', 'collector'])
      for (const { env } of workloads(set)
        .flatMap(containersOf)
        .filter((each) => each.name === name))
        expect(env).toContainEqual({ name: 'MIGRATE', value: 'off' })
  })

  it.each(sets)('takes secrets by reference, never as values (%s)', async (set) => {
    const secrets = new Set(
      declaredSettings().flatMap(({ name, secret }) => (secret ? [name] : [])),
    )
    for (const { env = [] } of workloads(set).flatMap(containersOf))
      expect(
        env.map(({ name }) => name).filter((name) => secrets.has(name) && name !== 'REDIS_URL'),
      ).toEqual([])
    expect(manifests(set, 'Secret')).toEqual([])
  })

  it('runs the signer with the sidecar, with the flags of compose.yaml', async () => {
    const pod = workloads('signer').find(({ metadata }) => metadata.name === `${release}-sidecar`)
    const [sidecar, signer] = pod ? containersOf(pod) : []
    // Only the signer's port leaves the pod.
    expect(sidecar?.env).toContainEqual({ name: 'HOST', value: '127.0.0.1' })
    expect(signer?.args).toContain('-remoteSignerWebhookUrl=http://127.0.0.1:8090/authorize')
    expect(signer?.args).toContain('-kafkaBootstrapServers=kafka-0:9092')
    const compose = parse(await readFile(join(root, 'deploy/docker/compose.yaml'), 'utf8'))
    const flag = (text: string): string => text.split('=')[0] ?? ''
    expect(signer?.args.map(flag)).toEqual(
      expect.arrayContaining(compose.services.signer.command.map(flag)),
    )
    expect(signer?.image).toBe(/:-(.*)\}/.exec(compose.services.signer.image)?.[1])
    expect(signer?.env?.map(({ name }) => name)).toEqual(
      expect.arrayContaining(Object.keys(compose.services.signer.environment)),
    )
  })

  it('gives the signer its key as a file of a folder, and its secrets by reference', async () => {
    const signer = workloads('signer')
      .flatMap(containersOf)
      .find(({ name }) => name === 'signer')
    expect(signer?.args).toEqual(
      expect.arrayContaining([
        '-ethKeystorePath=/signer/keystore',
        '-ethPassword=/signer/password',
      ]),
    )
    // A key of a Secret that is mounted without subPath is a symbolic link, which livepeer skips.
    const mount = (mountPath: string, subPath: string) => {
      const source = { name: 'signer-key', readOnly: true }
      return { ...source, mountPath, subPath }
    }
    expect(signer?.volumeMounts?.filter(({ name }) => name === 'signer-key')).toEqual([
      mount('/signer/keystore/key.json', 'keystore'),
      mount('/signer/password', 'password'),
    ])
    const reference = (key: string) => ({ secretKeyRef: { name: 'tollgate-signer', key } })
    expect(signer?.env).toEqual([
      { name: 'LP_ETHURL', valueFrom: reference('eth-url') },
      ...['user', 'password'].map((key) => ({
        name: `LP_KAFKA${key.toUpperCase()}`,
        valueFrom: { secretKeyRef: { ...reference(`kafka-${key}`).secretKeyRef, optional: true } },
      })),
    ])
    const open = await render('--values', valuesOf('signer'), '--set', 'signer.ethUrl=http://node')
    expect(open).toContain('- name: LP_ETHURL\n              value: "http://node"\n')
  })

  it('starts livepeer only if the folder has a key file', async () => {
    const [, , script = ''] =
      workloads('signer')
        .flatMap(containersOf)
        .find(({ name }) => name === 'signer')?.command ?? []
    const [signer, secret] = [join(folder, 'key'), join(folder, 'webhook')]
    await mkdir(join(signer, 'keystore'), { recursive: true })
    await writeFile(secret, 'new,old')
    expect(startSigner(script, { signer, secret }).code).toBe(1)
    await writeFile(join(signer, 'keystore/key.json'), '{}')
    const text = 'Authorization:Bearer new -one -two\n'
    expect(startSigner(script, { signer, secret })).toEqual({ code: 0, text })
  })

  it('counts the ingress controller as a proxy, unless the settings have another number', async () => {
    const hops = (text: string) => /TRUSTED_PROXY_HOPS\n +value: "(\d)"/.exec(text)?.[1]
    const files = ['--values', valuesOf('signer')]
    expect(hops(await render(...files))).toBe('1')
    const other = 'settings.TRUSTED_PROXY_HOPS=2'
    for (const set of [other, `gateway.${other}`])
      expect(hops(await render(...files, '--set-string', set))).toBe('2')
    expect(hops(await render('--values', valuesOf('minimal')))).toBeUndefined()
  })

  it('has the builder API at a Service for the cluster, never at a load balancer', () => {
    const ports = (set: string) =>
      manifests(set, 'Service')
        .filter(({ metadata }) => metadata.name.includes('gateway'))
        .map(({ metadata: { name }, spec }) => [
          name,
          spec.type,
          spec.externalTrafficPolicy,
          ...spec.ports.map(({ targetPort }) => targetPort),
        ])
    const name = `${release}-gateway`
    expect(ports('minimal')).toEqual([[name, 'ClusterIP', undefined, 'platform', 'builder']])
    expect(ports('large')).toEqual([
      [name, 'LoadBalancer', 'Local', 'platform'],
      [`${name}-builder`, undefined, undefined, 'builder'],
    ])
  })

  it('lets core send mail, and all that use Redis reach its Sentinels', () => {
    const ports = (set: string, part: string) =>
      manifests(set, 'NetworkPolicy')
        .filter(({ metadata }) => metadata.name === `${release}-${part}`)
        .flatMap(({ spec }) => spec.egress.flatMap((rule) => rule.ports.map(({ port }) => port)))
    expect(ports('signer', 'core')).toEqual([53, 53, 5432, 6379, 26379, 443, 587])
    for (const part of ['gateway', 'sidecar', 'collector'])
      expect(ports('signer', part)).toEqual(expect.arrayContaining([6379, 26379]))
    expect(ports('signer', 'gateway')).not.toContain(587)
    expect(ports('large', 'core')).toEqual([53, 53, 5432, 6379, 443, 465, 4318])
  })

  it("migrates with core's settings and volumes, on core's nodes", async () => {
    const text = await render('--values', valuesOf('large'), '--values', valuesOf('migration'))
    const job = (manifest: string) => readManifests(manifest).find(({ kind }) => kind === 'Job')
    const pod = (manifest: string) => job(manifest)?.spec.template.spec
    const ca = { name: 'db-ca', mountPath: '/etc/db', readOnly: true }
    const large = await readFile(join(folder, 'large.yaml'), 'utf8')
    expect(pod(large)?.containers[0]?.volumeMounts).toEqual(expect.arrayContaining([ca]))
    expect(pod(large)?.volumes?.map(({ name }) => name)).toEqual(['secrets', 'tmp', 'db-ca'])
    expect(pod(large)).toMatchObject({
      nodeSelector: { pool: 'services' },
      tolerations: [{ key: 'pool' }],
    })
    expect(pod(text)?.volumes?.map(({ name }) => name)).toContain('archive')
    expect(pod(text)?.nodeSelector).toEqual({ pool: 'batch' })
    expect(pod(text)?.containers[0]?.env).toContainEqual({
      name: 'NODE_EXTRA_CA_CERTS',
      value: '/etc/db/ca.pem',
    })
  })

  it('configures Kafka for core, and the direct address for migrations', () => {
    const variables = (set: string, part: string) =>
      workloads(set)
        .filter(({ metadata }) => metadata.name === `${release}-${part}`)
        .flatMap(containersOf)
        .flatMap(({ env = [] }) => env.map(({ name, value }) => `${name}=${value}`))
    expect(variables('signer', 'core')).toContain('KAFKA_BROKERS=kafka-0:9092,kafka-1:9092')
    expect(variables('minimal', 'core').join()).not.toContain('KAFKA_BROKERS')
    expect(variables('large', 'migrate').join()).toContain('DATABASE_DIRECT_URL_FILE=')
  })

  it('has the alerts of deploy/alerts.yml as a PrometheusRule', async () => {
    const [rule] = manifests('signer', 'PrometheusRule')
    expect(rule?.spec).toEqual(parse(await readFile(join(root, 'deploy/alerts.yml'), 'utf8')))
    expect(manifests('minimal', 'PrometheusRule')).toEqual([])
  })

  it('adds volumes and egress rules of the operator', async () => {
    const text = await readFile(join(folder, 'large.yaml'), 'utf8')
    expect(text.match(/mountPath: \/archive/g)).toHaveLength(1)
    expect(text.match(/claimName: archive/g)).toHaveLength(1)
    const policies = manifests('large', 'NetworkPolicy')
    expect(text.match(/port: 4318/g)).toHaveLength(policies.length)
  })

  it.each([
    ['settings.PUBLIC_URL=', /PUBLIC_URL/],
    ['settings.PUBLIC_URL=pay.example', /PUBLIC_URL/],
    ['settings.LEASE_SECONDS=30', /LEASE_SECONDS.*(string|type)/s],
    ['core.replica=3', /replica/],
    ['core.replicas=0', /replicas/],
    ['image.pullPolicy=Sometimes', /pullPolicy/],
    ['settings.REDIS_URL=', /REDIS_URL is required/],
    ['signer.enabled=true', /signer.ethAddress is required/],
    ['signer.enabled=true,signer.ethAddress=0x1', /core.settings.SIGNER_DMZ_URL/],
    ['networkPolicy.ports.smtp=-1', /smtp/],
    ['gateway.service.externalTrafficPolicy=Near', /externalTrafficPolicy/],
    ['gateway.ingress.enabled=true', /gateway.ingress.host is required/],
  ])('refuses %s', async (value, message) => {
    await expect(render('--values', valuesOf('minimal'), '--set', value)).rejects.toThrow(message)
  })

  it('describes every value in values.schema.json', async () => {
    const values = parse(await readFile(join(chart, 'values.yaml'), 'utf8'))
    const schema = JSON.parse(await readFile(join(chart, 'values.schema.json'), 'utf8'))
    const keys = Object.keys(values)
    expect(
      Object.keys(schema.properties)
        .filter((key) => key !== 'global')
        .toSorted(),
    ).toEqual(keys.toSorted())
  })

  it('has the number of the release', async () => {
    const { version } = JSON.parse(await readFile(join(root, 'package.json'), 'utf8'))
    const meta = parse(await readFile(join(chart, 'Chart.yaml'), 'utf8'))
    expect([readText(meta.version), readText(meta.appVersion)]).toEqual([version, version])
  })
})

describe('compose.yaml', () => {
  it('is accepted by the parser of Docker Compose', { timeout: buildMs }, async () => {
    const compose = await programPath('compose')
    const deployment = join(folder, 'deployment')
    await tollgate('init', '--dir', deployment)
    const { stdout } = await run(compose, ['compose.yaml'], { cwd: deployment })
    expect(Object.keys(parse(stdout).services)).toEqual(expect.arrayContaining(['core', 'sidecar']))
    const path = join(deployment, 'compose.yaml')
    await writeFile(path, (await readFile(path, 'utf8')).replace('read_only:', 'readonly:'))
    await expect(run(compose, ['compose.yaml'], { cwd: deployment })).rejects.toThrow(/readonly/)
  })
})
