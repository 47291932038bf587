import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { cp, mkdir, rm, symlink, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { promisify } from 'node:util'
import { contextFiles } from './context.ts'
import { type Stage, type Step, readStages } from './dockerfile.ts'

/**
 * Builds the image of deploy/docker/Dockerfile as a folder, without a container engine: executes its
 * RUN and COPY steps in a bare Debian with Node, and runs its entry point there by chroot. Needs
 * root, mmdebstrap and unshare.
 */
const run = promisify(execFile)
const project = join(import.meta.dirname, '../..')
const path = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'
const stepMs = 15 * 60_000
const maxBuffer = 64 * 1024 * 1024
/** Authorities of a registry behind a proxy, if Node has them by a variable. */
const authorities = process.env['NODE_EXTRA_CA_CERTS']

export interface Image {
  readonly root: string
  /** Seconds of each step, for the report. */
  readonly steps: readonly string[]
  readonly env: Readonly<Record<string, string>>
  readonly healthcheck: readonly string[]
  /** Starts the entry point with arguments, as `docker run --read-only --tmpfs /tmp` does. */
  start(args: readonly string[], env?: Readonly<Record<string, string>>): ChildProcess
  /** The same for any program instead of the entry point. */
  startProgram(words: readonly string[], env?: Readonly<Record<string, string>>): ChildProcess
}

interface State {
  readonly root: string
  env: Record<string, string>
  workdir: string
  user: string
}

export async function buildImage(folder: string): Promise<Image> {
  const steps: string[] = []
  async function timed<T>(what: string, work: () => Promise<T>): Promise<T> {
    const startedAt = performance.now()
    const value = await work()
    steps.push(`${((performance.now() - startedAt) / 1_000).toFixed(1)} s  ${what}`)
    return value
  }
  const base = join(folder, 'base')
  await timed('FROM: Debian with Node', () => makeBase(base))
  const context = await copyContext(join(folder, 'context'))
  const roots = new Map<string, string>()
  const stages = readStages()
  let state: State = toState('')
  for (const [index, stage] of stages.entries()) {
    state = toState(join(folder, `stage-${index}`))
    await run('cp', ['-a', base, state.root])
    if (stage.name !== undefined) roots.set(stage.name, state.root)
    for (const step of stage.steps)
      await timed(`${step.keyword} ${step.text}`.slice(0, 100), () =>
        execute(step, state, (name) => (name === undefined ? context : (roots.get(name) ?? ''))),
      )
  }
  const last = stages.at(-1)
  const entrypoint = wordsOf(last, 'ENTRYPOINT')
  return {
    root: state.root,
    steps,
    env: state.env,
    healthcheck: wordsOf(last, 'HEALTHCHECK'),
    start: (args, env = {}) => startIn(state, [...entrypoint, ...args], env),
    startProgram: (words, env = {}) => startIn(state, words, env),
  }
}

const toState = (root: string): State => ({ root, env: {}, workdir: '/', user: '0:0' })

const wordsOf = (stage: Stage | undefined, keyword: string): readonly string[] =>
  stage?.steps.findLast((step) => step.keyword === keyword)?.words ?? []

/** What the official image of Node has: Debian, Node, npm, and the user node. */
async function makeBase(root: string): Promise<void> {
  await run('mmdebstrap', ['--variant=minbase', '--quiet', 'bookworm', root], {
    timeout: stepMs,
    maxBuffer,
  })
  await run('chroot', [root, 'groupadd', '--gid', '1000', 'node'])
  const user = ['--uid', '1000', '--gid', 'node', '--shell', '/bin/bash', '--create-home', 'node']
  await run('chroot', [root, 'useradd', ...user])
  await cp(process.execPath, join(root, 'usr/local/bin/node'), { dereference: true })
  // Engines write this file.
  await writeFile(join(root, 'etc/hosts'), '127.0.0.1 localhost\n')
  const { stdout } = await run('npm', ['root', '--global'])
  const modules = join(root, 'usr/local/lib/node_modules')
  await mkdir(modules, { recursive: true })
  await run('cp', ['-a', join(stdout.trim(), 'npm'), modules])
  for (const name of ['npm', 'npx'])
    await symlink(`../lib/node_modules/npm/bin/${name}-cli.js`, join(root, 'usr/local/bin', name))
}

async function copyContext(folder: string): Promise<string> {
  for (const file of contextFiles()) {
    await mkdir(dirname(join(folder, file)), { recursive: true })
    await cp(join(project, file), join(folder, file), { verbatimSymlinks: true })
  }
  return folder
}

async function execute(
  step: Step,
  state: State,
  rootOf: (stage: string | undefined) => string,
): Promise<void> {
  const { keyword, text } = step
  if (keyword === 'ENV') state.env = { ...state.env, ...step.env }
  else if (keyword === 'USER') state.user = text
  else if (keyword === 'WORKDIR') {
    state.workdir = text
    await mkdir(join(state.root, text), { recursive: true })
  } else if (keyword === 'COPY') await copy(step, state, rootOf(step.from))
  else if (keyword === 'RUN') await runStep(text, state)
  else if (!['EXPOSE', 'HEALTHCHECK', 'ENTRYPOINT', 'CMD', 'LABEL'].includes(keyword))
    throw new Error(`the test does not know the instruction ${keyword}`)
}

async function copy({ text }: Step, { root, workdir }: State, from: string): Promise<void> {
  const paths = text.split(/\s+/)
  const target = join(root, paths.at(-1)?.startsWith('/') ? '' : workdir, paths.at(-1) ?? '')
  await mkdir(target, { recursive: true })
  for (const source of paths.slice(0, -1)) {
    // A folder's content, or a file itself.
    const isFolder = source === '.' || !/\.\w+$/.test(source)
    await run('cp', ['-a', join(from, source) + (isFolder ? '/.' : ''), target])
  }
}

/** Runs a step with the network and name resolution of this machine, which leave no trace. */
async function runStep(command: string, state: State): Promise<void> {
  const { stdout } = await run('npm', ['config', 'get', 'cache'])
  const script = `
    mount -t proc proc "$ROOT/proc"; mount --rbind /dev "$ROOT/dev"; mount -t tmpfs tmpfs "$ROOT/tmp"
    mount --bind /etc/resolv.conf "$ROOT/etc/resolv.conf"
    if [ -n "$AUTHORITIES" ]; then cp "$AUTHORITIES" "$ROOT/tmp/ca.pem"; fi
    if [ -d "$NPM_CACHE" ] && [ "$USERSPEC" = 0:0 ]; then
      mkdir "$ROOT/tmp/npm"; mount --bind "$NPM_CACHE" "$ROOT/tmp/npm"
    fi
    exec chroot --userspec="$USERSPEC" "$ROOT" /usr/bin/env -i PATH="$PATH" HOME=/tmp npm_config_cache=/tmp/npm \\
      $VARIABLES sh -ec "cd '$WORKDIR'; $COMMAND"`
  const variables = {
    ...state.env,
    ...(authorities === undefined ? {} : { NODE_EXTRA_CA_CERTS: '/tmp/ca.pem' }),
  }
  await writeFile(join(state.root, 'etc/resolv.conf'), '')
  await run('unshare', ['--mount', '--propagation=private', 'sh', '-ec', script], {
    timeout: stepMs,
    maxBuffer,
    env: {
      PATH: path,
      ROOT: state.root,
      USERSPEC: state.user,
      WORKDIR: state.workdir,
      COMMAND: command,
      AUTHORITIES: authorities ?? '',
      NPM_CACHE: stdout.trim(),
      VARIABLES: Object.entries(variables)
        .map(([name, value]) => `${name}=${value}`)
        .join(' '),
    },
  })
}

/** Runs a program in the read-only image, as its user. The process replaces the shells. */
function startIn(
  { root, env, workdir, user }: State,
  words: readonly string[],
  more: Readonly<Record<string, string>>,
): ChildProcess {
  const [uid, gid] = user.split(':')
  const script = `
    mount --bind "$ROOT" "$ROOT"; mount -t proc proc "$ROOT/proc"; mount --rbind /dev "$ROOT/dev"
    mount -o remount,bind,ro "$ROOT"
    mount -t tmpfs -o mode=1777 tmpfs "$ROOT/tmp"
    mount -t tmpfs -o mode=700,uid=${uid},gid=${gid} tmpfs "$ROOT/var/lib/tollgate/spool"
    exec chroot --userspec="$USERSPEC" "$ROOT" sh -ec 'cd "$WORKDIR"; unset ROOT USERSPEC WORKDIR; exec "$@"' sh "$@"`
  return spawn(
    'unshare',
    ['--mount', '--propagation=private', 'sh', '-ec', script, 'sh', ...words],
    {
      env: {
        PATH: path,
        HOME: '/tmp',
        ...env,
        ...more,
        ROOT: root,
        USERSPEC: user,
        WORKDIR: workdir,
      },
      stdio: ['ignore', 'pipe', 'pipe'],
    },
  )
}

/** Bytes of the layers above the base image, compressed as registries store them. */
export async function compressedBytes(image: Image): Promise<number> {
  const { stdout } = await run(
    'sh',
    [
      '-c',
      'tar -C "$0" -c app usr/local/bin/tollgate var/lib/tollgate | gzip -6 | wc -c',
      image.root,
    ],
    { timeout: stepMs },
  )
  return Number(stdout.trim())
}

export const removeImage = (folder: string): Promise<void> =>
  rm(folder, { recursive: true, force: true, maxRetries: 3 })
