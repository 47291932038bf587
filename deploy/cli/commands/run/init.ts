import { randomBytes } from 'node:crypto'
import { chown, cp, mkdir, mkdtemp, readdir, rename, rm, writeFile } from 'node:fs/promises'
import { basename, dirname, join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { newSecret } from '../../../../core/lib/crypto.ts'
import { action, createCommand } from '../../command.ts'
import { UsageError, parsed, required, text, toggle } from '../../options.ts'

const source = fileURLToPath(new URL('../../../../', import.meta.url))

/** What a deployment needs of deploy/, by its path there. compose.yaml is the only description of it. */
const copies: Readonly<Record<string, string>> = {
  'compose.yaml': 'docker/compose.yaml',
  'tollgate.yaml': 'docker/tollgate.yaml',
  'prometheus.yml': 'docker/prometheus.yml',
  'alerts.yml': 'alerts.yml',
  grafana: 'grafana',
}
/** The user of the image, for a deployment that root creates. */
const imageUser = { uid: 1000, gid: 1000 }

export const init = createCommand('init', {
  summary: 'writes a Docker Compose folder with fresh secrets',
  examples: [
    './tollgate init --dir /srv/tollgate --public-url https://pay.example',
    './tollgate init --dir ./deployment --without-kafka',
  ],
  action: action({
    text:
      'Creates DIR with compose.yaml, .env, tollgate.yaml for further settings, the files of Prometheus and Grafana, ' +
      'and a new secret in each file of secrets/, which only the user may read (mode 0600). DIR must be missing or ' +
      'empty: nothing is overwritten, because the old secrets would be lost. Without Kafka, signers push their ' +
      'events to the sidecar. Run as root, the files belong to user 1000, as which the containers run.',
    options: {
      dir: required('DIR'),
      publicUrl: parsed(
        text('URL', {
          meaning: 'PUBLIC_URL, part of every token; http://localhost:8080 by default.',
        }),
        parseOrigin,
      ),
      withoutKafka: toggle(),
    },
    run: createDeployment,
    json: (answer) => answer,
    lines: ({ dir, files }) => [`${dir}: ${files.join(', ')}`, '', ...nextSteps(dir)],
  }),
})

interface InitOptions {
  readonly dir: string
  readonly publicUrl?: string | undefined
  readonly withoutKafka: boolean
}

/** Fills a draft beside DIR, then renames it, so that DIR is complete or unchanged. */
async function createDeployment({ dir: path, ...options }: InitOptions) {
  const dir = resolve(path)
  await requireEmpty(dir)
  await mkdir(dirname(dir), { recursive: true }).catch(refuse(dir))
  const draft = await mkdtemp(join(dirname(dir), `.${basename(dir)}-`)).catch(refuse(dir))
  try {
    const user = process.getuid?.() === 0 ? imageUser : ownUser()
    await fill(draft, { ...options, user })
    await rename(draft, dir).catch(refuse(dir))
  } finally {
    await rm(draft, { recursive: true, force: true })
  }
  return { dir, files: (await readdir(dir)).toSorted() }
}

const ownUser = () => ({
  uid: process.getuid?.() ?? imageUser.uid,
  gid: process.getgid?.() ?? imageUser.gid,
})

async function fill(
  folder: string,
  { user, ...options }: Omit<InitOptions, 'dir'> & { readonly user: typeof imageUser },
): Promise<void> {
  for (const [name, path] of Object.entries(copies)) {
    const from = join(source, 'deploy', path)
    await cp(from, join(folder, name), { recursive: true })
  }
  await writePrivate(join(folder, '.env'), environment({ user, ...options }))
  for (const name of ['secrets', 'spool', 'signer', 'signer/keystore'])
    await mkdir(join(folder, name), { mode: 0o700 })
  for (const [name, secret] of Object.entries(newSecrets()))
    await writePrivate(join(folder, 'secrets', name), secret)
  if (process.getuid?.() === 0) await giveTo(folder, user)
}

/** The values of compose.yaml's variables, and its profiles. */
const environment = ({
  user,
  publicUrl = 'http://localhost:8080',
  withoutKafka,
}: Omit<InitOptions, 'dir'> & { readonly user: typeof imageUser }): string =>
  `# Values for compose.yaml, which explains them. Settings of tollgate itself are in tollgate.yaml.
COMPOSE_PROFILES=${withoutKafka ? 'watch' : 'kafka,watch'}
PUBLIC_URL=${publicUrl}
KAFKA_BROKERS=${withoutKafka ? '' : 'kafka:9092'}
# The signers' public address, which apps get with their tokens.
# SIGNER_URL=https://signer.pay.example
TOLLGATE_USER=${user.uid}:${user.gid}
# The clone from which \`docker compose build\` makes the image.
TOLLGATE_SOURCE=${resolve(source)}
TOLLGATE_FILES=.
# For the profile signer:
# ETH_URL=https://arb1.example
# ETH_ADDRESS=0x…
`

/** The files of secrets/, as compose.yaml names them. */
function newSecrets(): Record<string, string> {
  // PostgreSQL's password is part of a URL.
  const password = randomBytes(24).toString('base64url')
  return {
    'database-password': password,
    'database-url': `postgres://tollgate:${password}@postgres:5432/tollgate`,
    'key-encryption-key': newSecret(''),
    'secret-peppers': `p1:${newSecret('')}`,
    'core-token-gateway': newSecret(''),
    'core-token-sidecar': newSecret(''),
    'core-token-operator': newSecret(''),
    'webhook-secret': newSecret('whsec_'),
    'grafana-password': newSecret(''),
  }
}

const writePrivate = (path: string, content: string): Promise<void> =>
  writeFile(path, content.endsWith('\n') ? content : `${content}\n`, { mode: 0o600, flag: 'wx' })

async function giveTo(folder: string, { uid, gid }: typeof imageUser): Promise<void> {
  const entries = await readdir(folder, { recursive: true })
  for (const path of ['', ...entries]) await chown(join(folder, path), uid, gid)
}

async function requireEmpty(dir: string): Promise<void> {
  const entries = await readdir(dir).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return []
    throw new Error(`--dir: ${dir} cannot be used (${error.code ?? error.message})`, {
      cause: error,
    })
  })
  if (entries.length > 0)
    throw new Error(
      `--dir: ${dir} is not empty; nothing is overwritten, because the secrets of a deployment would be lost`,
    )
}

const refuse =
  (dir: string) =>
  (error: NodeJS.ErrnoException): never => {
    throw new Error(`--dir: ${dir} cannot be created (${error.code ?? error.message})`, {
      cause: error,
    })
  }

function parseOrigin(address: string, name: string): string {
  const url = URL.parse(address)
  if (url && /^https?:$/.test(url.protocol) && url.origin === address.replace(/\/$/, ''))
    return url.origin
  throw new UsageError(`${name} must be an origin such as https://pay.example`)
}

const nextSteps = (dir: string): string[] => [
  'Next:',
  `  cd ${dir}`,
  '  docker compose up -d --build',
  '  docker compose run --rm tollgate account create --email you@example.com --platform-admin --target core:50051',
  '  docker compose run --rm tollgate app create --name "My app" --owner you@example.com --target core:50051',
  'Copy secrets/ to a safe place: without key-encryption-key and secret-peppers a backup of the database is useless.',
  'Before another machine uses it, put a proxy with TLS in front and set PUBLIC_URL, which is part of every token.',
]
