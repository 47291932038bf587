// Makes a clone ready to run: installs the locked dependencies when node_modules does not match
// package-lock.json, then generates code when proto/ has changed. npm runs it before `npm start`
// and the like, on whatever Node the machine has (20 or later), and so does the tollgate command.
// When there is nothing to do it prints nothing and takes a moment.
//
// The generators are development dependencies. On a fresh clone where those are not wanted (NODE_ENV=production)
// they are installed until the code is generated. A deployment generates before it drops them:
//
//     npm ci && npm run build && npm prune --omit=dev
//
// Without them the generated code of the build is used as it is.

import { spawn, spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import {
  existsSync,
  linkSync,
  lstatSync,
  mkdirSync,
  readFileSync,
  readdirSync,
  realpathSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { delimiter, dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

const NODE_MAJOR = 24
const INSTALL_MINUTES = 15
const GENERATE_MINUTES = 2
const PROGRESS_SECONDS = 3
const OUTPUT_CHARACTERS = 64 * 1024
/** What npm prints of a registry that does not answer. */
const UNREACHABLE =
  /ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ENETUNREACH|ERR_SOCKET_TIMEOUT|CERT_|SELF_SIGNED/
/** What is generated, each only where its template is; `outputs` are folders of proto/gen. */
const GENERATIONS = [
  { template: 'proto/buf.gen.yaml', input: 'proto', outputs: ['ts-proto', 'es'] },
  {
    template: 'deploy/signer-double/buf.gen.yaml',
    input: 'deploy/signer-double/orchestrator.proto',
    outputs: ['signer-double'],
  },
]
const GENERATORS = ['@bufbuild/buf', '@bufbuild/protoc-gen-es', 'ts-proto']

/** A problem the user can act on, printed without a stack. */
const problem = (message) => Object.assign(new Error(message), { isProblem: true })

/** Installs and generates what is missing under `root`. A second setup waits for the first. */
export async function setup(root, log = (line) => process.stderr.write(`${line}\n`)) {
  if (!isInstalled(root) || !isGenerated(root)) {
    await withLock(root, log, async () => {
      if (!isInstalled(root)) await installAndGenerate(root, log)
      if (!isGenerated(root)) await generate(root, log)
    })
  }
  if (!existsSync(pinnedNode(root)) && nodeMajor() < NODE_MAJOR) {
    throw problem(
      `tollgate needs Node ${NODE_MAJOR} or later and brings none for this platform ` +
        `(${process.platform}-${process.arch}): install Node ${NODE_MAJOR}; this is ${process.version}`,
    )
  }
}

/** The Node that the dependencies bring, where they bring one for this platform. */
export function pinnedNode(root) {
  return join(root, 'node_modules', '.bin', 'node')
}

export function nodeMajor() {
  return Number(process.versions.node.split('.')[0])
}

/** Whether npm's own record of node_modules agrees with the lock file. */
function isInstalled(root) {
  const lock = readJson(join(root, 'package-lock.json'))
  if (lock === null) return true
  const installed = readJson(join(root, 'node_modules', '.package-lock.json'))?.packages
  if (!installed) return false
  const locked = Object.entries(lock.packages).filter(([path]) => path !== '')
  const omitsDev = omitsDevelopment(locked, installed)
  return (
    locked.every(([path, entry]) =>
      installed[path] ? installed[path].version === entry.version : mayBeAbsent(entry, omitsDev),
    ) && Object.keys(installed).every((path) => path in lock.packages)
  )
}

/** Whether the installation leaves development packages out: as npm is told, or as it was made. */
function omitsDevelopment(locked, installed) {
  if (leavesOutDevelopment()) return true
  const development = locked.filter(([, entry]) => entry.dev)
  return development.length > 0 && development.every(([path]) => !(path in installed))
}

/** Whether npm is told to leave development packages out. */
function leavesOutDevelopment() {
  if (/\bdev\b/.test(process.env.npm_config_include ?? '')) return false
  return process.env.NODE_ENV === 'production' || /\bdev\b/.test(process.env.npm_config_omit ?? '')
}

/** Optional packages are absent on other platforms, development packages in production. */
function mayBeAbsent(entry, omitsDev) {
  return Boolean(entry.optional || ((entry.dev || entry.devOptional) && omitsDev))
}

/** Installs. What is not wanted but generates code stays until it has done that. */
async function installAndGenerate(root, log) {
  const needsMore = leavesOutDevelopment() && !isGenerated(root)
  await install(root, log, needsMore ? ['--include=dev'] : [])
  if (!needsMore) return
  await generate(root, log)
  await npm(root, log, { args: ['prune', '--omit=dev'], doing: 'dropping what only generates' })
}

async function install(root, log, more = []) {
  // npm ci would empty the folder that the link points at, which belongs to another project.
  if (lstatSync(join(root, 'node_modules'), { throwIfNoEntry: false })?.isSymbolicLink()) {
    throw problem(
      'node_modules is a link to a folder that does not fit package-lock.json; remove the link and try again',
    )
  }
  log('tollgate: installing dependencies (npm ci), once')
  await npm(root, log, { args: ['ci', ...more], doing: 'installing' })
  dropUnusableNode(root)
}

/** Runs the npm that runs this script, or the one of the path. */
async function npm(root, log, { args, doing }) {
  const path = process.env.npm_execpath
  const runsHere = path !== undefined && /\bnpm-cli\.[cm]?js$/.test(path) && existsSync(path)
  const options = [...args, '--no-audit', '--no-fund']
  await run({
    command: runsHere ? hostNode(root) : 'npm',
    args: runsHere ? [path, ...options] : options,
    root,
    log,
    doing,
    env: installEnvironment(root),
    minutes: INSTALL_MINUTES,
    what: `npm ${args[0]}`,
  })
}

/** The running Node, unless it lives in the node_modules that npm is about to remove. */
function hostNode(root) {
  return process.execPath.startsWith(join(root, 'node_modules')) ? 'node' : process.execPath
}

/** The environment for a nested npm: without the variables by which `npm start` describes itself. */
function installEnvironment(root) {
  const ours = /^(npm_(lifecycle|package|command|execpath|node_execpath)|INIT_CWD$)/
  const misleading = /^npm_config_(json|dry_run|loglevel|workspaces?|include_workspace_root)$/
  const variables = Object.entries(process.env).filter(
    ([name]) => !ours.test(name) && !misleading.test(name),
  )
  const bin = join(root, 'node_modules', '.bin')
  const path = (process.env.PATH ?? '').split(delimiter).filter((entry) => entry !== bin)
  return { ...Object.fromEntries(variables), PATH: path.join(delimiter) }
}

/** On a system without glibc the pinned Node is installed but does not run. */
function dropUnusableNode(root) {
  const node = pinnedNode(root)
  if (!existsSync(node)) return
  const { status } = spawnSync(node, ['--version'], { stdio: 'ignore', timeout: 30_000 })
  if (status !== 0) rmSync(node)
}

/**
 * Whether proto/gen fits proto/. Its `.hash` holds two digests: of the contract and of the
 * generators. Where the generators are not installed only the first can be compared.
 */
function isGenerated(root) {
  const generated = join(root, 'proto', 'gen')
  const outputs = generations(root).flatMap((generation) => generation.outputs)
  if (outputs.length === 0) return true
  if (!outputs.every((folder) => existsSync(join(generated, folder)))) return false
  const [contract, generators] = (readText(join(generated, '.hash')) ?? '').split(' ')
  if (contract !== contractHash(root)) return false
  return !hasGenerators(root) || generators === generatorHash(root)
}

function generations(root) {
  return GENERATIONS.filter(({ template }) => existsSync(join(root, template)))
}

async function generate(root, log) {
  if (!hasGenerators(root)) {
    throw problem(
      'the code generated from proto/ is missing or older than the contract, and its generators are ' +
        'development dependencies; run: npm ci --include=dev && npm run build && npm prune --omit=dev',
    )
  }
  const hash = `${contractHash(root)} ${generatorHash(root)}`
  log('tollgate: generating code from proto/')
  const bin = join(root, 'node_modules', '.bin')
  const env = { ...process.env, PATH: `${bin}${delimiter}${process.env.PATH ?? ''}` }
  for (const { template, input } of generations(root)) {
    const args = ['generate', '--template', template, input]
    const options = { minutes: GENERATE_MINUTES, what: 'buf generate', doing: 'generating' }
    await run({ command: 'buf', args, root, env, log, ...options })
  }
  mkdirSync(join(root, 'proto', 'gen'), { recursive: true })
  writeFileSync(join(root, 'proto', 'gen', '.hash'), hash)
}

function hasGenerators(root) {
  return existsSync(join(root, 'node_modules', '.bin', 'buf'))
}

/** Covers the `.proto` files and the generators' settings. */
function contractHash(root) {
  const hash = createHash('sha256')
  const paths = generations(root).flatMap(({ template }) => contractFiles(root, dirname(template)))
  for (const path of paths) {
    hash
      .update(`${path}\0`)
      .update(readFileSync(join(root, path)))
      .update('\0')
  }
  return hash.digest('hex')
}

/** Covers the generators' versions. */
function generatorHash(root) {
  const hash = createHash('sha256')
  for (const name of GENERATORS) {
    const manifest = readJson(join(root, 'node_modules', name, 'package.json'))
    hash.update(`${name}@${manifest?.version}\0`)
  }
  return hash.digest('hex')
}

function contractFiles(root, folder) {
  const list = (parent) =>
    readdirSync(join(root, parent), { withFileTypes: true }).flatMap((entry) => {
      const path = join(parent, entry.name)
      if (entry.isDirectory()) return entry.name === 'gen' ? [] : list(path)
      return /\.proto$|^buf\..*yaml$/.test(entry.name) ? [path] : []
    })
  return list(folder).sort()
}

/** Runs a command, and says every few seconds that it still runs, and at the end how long it took. */
async function run({ command, args, root, env, minutes, what, log, doing }) {
  const startedAt = Date.now()
  const seconds = () => Math.round((Date.now() - startedAt) / 1000)
  const timer = setInterval(
    () => log(`tollgate: still ${doing}, ${seconds()} s so far`),
    PROGRESS_SECONDS * 1000,
  )
  const { reason, output } = await runToEnd(command, args, {
    cwd: root,
    env,
    stdio: ['ignore', 'pipe', 'pipe'],
    timeout: minutes * 60_000,
  }).finally(() => clearInterval(timer))
  if (reason === null) return log(`tollgate: done ${doing} in ${seconds()} s`)
  const lines = output.split('\n').filter((line) => line.trim() !== '')
  const messages = lines.filter(
    (line) => !/^npm (warn|notice)|complete log of this run/i.test(line),
  )
  const advice = UNREACHABLE.test(output)
    ? [
        'the package registry cannot be reached: check the network, and the registry and proxy that ' +
          '"npm config get registry" and "npm config get https-proxy" name; then run this again',
      ]
    : []
  throw problem([`${what} failed: ${reason}`, ...messages.slice(-8), ...advice].join('\n  '))
}

/** Why the command failed, null when it did not, and the end of what it printed. */
function runToEnd(command, args, options) {
  return new Promise((resolve) => {
    let output = ''
    const child = spawn(command, args, options)
    const take = (chunk) => (output = (output + chunk).slice(-OUTPUT_CHARACTERS))
    child.stdout.setEncoding('utf8').on('data', take)
    child.stderr.setEncoding('utf8').on('data', take)
    child.once('error', (error) => resolve({ reason: error.message, output }))
    child.once('close', (status, signal) => {
      const reason = signal ? `ended by ${signal}` : `exit code ${status}`
      resolve({ reason: status === 0 ? null : reason, output })
    })
  })
}

/** Runs `work` while holding a lock file. A lock whose process is gone is taken over. */
async function withLock(root, log, work) {
  const folder = join(root, '.tollgate')
  const lock = join(folder, 'setup.lock')
  mkdirSync(folder, { recursive: true })
  const deadline = Date.now() + (INSTALL_MINUTES + GENERATE_MINUTES) * 60_000
  let announced = false
  while (!acquire(lock)) {
    if (Date.now() > deadline) throw problem(`another setup does not finish: see ${lock}`)
    if (!announced) log('tollgate: waiting for another setup in this directory')
    announced = true
    await new Promise((resolve) => setTimeout(resolve, 100))
  }
  const release = () => rmSync(lock, { force: true })
  process.once('exit', release)
  try {
    await work()
  } finally {
    process.off('exit', release)
    release()
  }
}

function acquire(lock) {
  try {
    writeFileSync(lock, String(process.pid), { flag: 'wx' })
    return true
  } catch (error) {
    if (error.code !== 'EEXIST') throw error
  }
  const content = readText(lock)
  if (isStale(lock, content)) removeStale(lock, content)
  return false
}

/** Removes a stale lock. When another process has replaced it meanwhile, the new lock is put back. */
function removeStale(lock, content) {
  const aside = `${lock}.${process.pid}`
  try {
    renameSync(lock, aside)
    if (readText(aside) !== content) linkSync(aside, lock)
  } catch (error) {
    if (error.code !== 'ENOENT' && error.code !== 'EEXIST') throw error
  }
  rmSync(aside, { force: true })
}

function isStale(lock, content) {
  const age = Date.now() - (statSync(lock, { throwIfNoEntry: false })?.mtimeMs ?? Date.now())
  const holder = Number(content)
  // A lock is created first and then filled: without a pid it may be a moment old.
  if (!holder) return age > 5_000
  if (age > (INSTALL_MINUTES + GENERATE_MINUTES) * 60_000) return true
  try {
    process.kill(holder, 0)
    return false
  } catch (error) {
    return error.code === 'ESRCH'
  }
}

function readText(path) {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return null
  }
}

function readJson(path) {
  const text = readText(path)
  return text === null ? null : JSON.parse(text)
}

/** One line and the last output of the failed command; a stack only for an unexpected error. */
export function explain(error) {
  return error.isProblem ? error.message : (error.stack ?? String(error))
}

const invoked = process.argv[1] && realpathSync(process.argv[1]) === fileURLToPath(import.meta.url)
if (invoked) {
  setup(dirname(dirname(fileURLToPath(import.meta.url)))).catch((error) => {
    process.stderr.write(`tollgate: ${explain(error)}\n`)
    process.exitCode = 1
  })
}
