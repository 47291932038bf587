import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { appendFile, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { WriteStream } from 'node:tty'
import { afterAll, afterEach, beforeAll, describe, expect, it, vi, onTestFinished } from 'vitest'
import { commands } from '../../deploy/main.ts'
import { registerSecret } from '../support/run/secrecy.ts'
import { tollgate } from './cli/support.ts'

const program = join(import.meta.dirname, '../../deploy/tollgate.mjs')

afterEach(() => vi.unstubAllEnvs())

it.each([
  ['--version', 0, /^tollgate \d+\.\d+\.\d+\n$/],
  [
    'help rate',
    0,
    /^Usage\n {2}tollgate rate set USD_PER_ETH[^]*\n\nExamples\n {2}\.\/tollgate rate /,
  ],
  ['help', 0, /\n\nMoney\n {2}grant [^]*Exit codes: 0 success, 1 failure/],
  ['statsu', 2, /did you mean status\?/],
  ['hepl', 2, /did you mean help\?/],
  ['rate set 3000 --sorce desk', 2, /'--sorce'; did you mean --source\?/],
  ['zzzzzzzz', 2, /^tollgate: there is no command "zzzzzzzz"; see/],
])('answers %s', async (line, code, text) => {
  expect(await tollgate(...line.split(' '))).toEqual({ code, text: expect.stringMatching(text) })
})

describe('every command', () => {
  const programs = ['start', 'core', 'gateway', 'sidecar', 'collector', 'demo', 'signer-double']
  // These print JSON, or a script, without an option.
  const printers = [/^tollgate (audit|completion) /, /^tollgate receipt (get|roots) /]

  it.each(Object.entries(commands).filter(([name]) => !programs.includes(name)))(
    'accepts --json in each usage of %s',
    async (_name, { help }) => {
      const syntaxes = help.usages.map(({ syntax }) => syntax)
      const others = syntaxes.filter((syntax) => !printers.some((known) => known.test(syntax)))
      for (const syntax of others) expect(syntax).toContain('--json')
    },
  )
})

describe('tollgate config', () => {
  it('shows one setting by its name, and exits with 1 if it is wrong', async () => {
    vi.stubEnv('PLATFORM_PORT', '8081')
    expect(await tollgate('config', 'platform_port')).toEqual({
      code: 0,
      text: expect.stringMatching(/^PLATFORM_PORT=8081 {2}\(environment\)\n {4}.+\n$/),
    })
    vi.stubEnv('SECRET_PEPPERS', `p1:${registerSecret('a-pepper-of-this-test-0123456789-abcdef')}`)
    const secret = JSON.parse((await tollgate('config', 'SECRET_PEPPERS', '--json')).text)
    expect(secret).toMatchObject({ value: '[hidden]', problems: [] })
    vi.stubEnv('PLATFORM_PORT', 'x')
    expect(await tollgate('config', 'PLATFORM_PORT')).toEqual({
      code: 1,
      text: expect.stringContaining('problem: PLATFORM_PORT must'),
    })
    expect((await tollgate('config', 'CORE_PORT')).code).toBe(0)
    expect(await tollgate('config', 'PLATFORM_PROT')).toEqual({
      code: 2,
      text: expect.stringContaining('did you mean PLATFORM_PORT?'),
    })
    expect((await tollgate('config', 'CORE_PORT', 'CORE_TLS_CERT')).code).toBe(2)
  })

  it('checks the settings of one process, from the environment and files', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'tollgate-config-'))
    onTestFinished(() => rm(folder, { recursive: true }))
    const path = join(folder, 'next.yaml')
    await writeFile(path, 'PLATFORM_PORT: 70000\n')
    vi.stubEnv('TOLLGATE_CONFIG', path)
    const wrong = await tollgate('config', 'check', 'gateway', '--json')
    expect(wrong.code).toBe(1)
    expect(JSON.parse(wrong.text)).toEqual({
      process: 'gateway',
      problems: expect.arrayContaining([expect.stringMatching(/^PLATFORM_PORT must be/)]),
      warnings: [],
    })
    await writeFile(join(folder, 'token'), 'x'.repeat(40))
    await writeFile(
      path,
      `PLATFORM_PORT: 7000\nPUBLIC_URL: https://gate.example\nCORE_TOKEN_GATEWAY_FILE: ${folder}/token\n`,
    )
    expect(await tollgate('config', 'check', 'gateway')).toEqual({
      code: 0,
      text: 'gateway can start with these settings.\n',
    })
    expect((await tollgate('config', 'PLATFORM_PORT')).text).toContain(`=7000  (${path})`)
    await writeFile(path, 'PLATFORM_PROT: 7000\n')
    expect(await tollgate('config', 'check')).toEqual({
      code: 1,
      text: expect.stringContaining(
        'problem: ' + path + ': PLATFORM_PROT is not a setting; did you mean',
      ),
    })
    expect((await tollgate('config', 'check', 'gatway')).text).toContain('did you mean gateway?')
  })
})

describe('tollgate logs', () => {
  const at = '2026-03-10T12:00:00.250Z'
  const line = (level: string, msg: string, more: object = {}) =>
    JSON.stringify({ level, time: at, name: 'tollgate', msg, ...more })
  const error = { type: 'Error', message: 'no', stack: 'Error: no\n    at here (x.ts:1:1)' }
  const entries = [
    line('debug', 'old'),
    line('info', 'served', { process: 'gateway', ms: 3, route: '/a b', empty: '' }),
    line('warn', 'slow\u001b[2J', { process: 'core' }),
    line('error', 'failed', { process: 'core', err: error }),
  ]
  let file: string
  beforeAll(async () => {
    const folder = await mkdtemp(join(tmpdir(), 'tollgate-logs-'))
    file = join(folder, 'tollgate.log')
    await writeFile(file, `${entries.join('\n')}\n{"level":"info","msg":"half`)
  })
  afterAll(() => rm(dirname(file), { recursive: true }))

  it('prints the last lines in readable form', async () => {
    vi.stubEnv('TOLLGATE_DATA_DIR', dirname(file))
    expect((await tollgate('logs', '--lines', '3')).text).toBe(
      `${at} INFO  gateway  served  ms=3  route="/a b"  empty=""\n` +
        `${at} WARN  core     slow?[2J\n` +
        `${at} ERROR core     failed\n    Error: no\n    at here (x.ts:1:1)\n`,
    )
    expect((await tollgate('logs', '--level', 'error')).text).toMatch(
      /^\S+ ERROR .*\n {4}Error: no/,
    )
    expect((await tollgate('logs', file, '--json')).text).toBe(`${entries.join('\n')}\n`)
  })

  it('reads only the end of a large file', async () => {
    const large = join(dirname(file), 'large.log')
    const lines = Array.from({ length: 40_000 }, (_, n) => line('info', `m${n}`))
    await writeFile(large, `${lines.join('\n')}\n`)
    const { text } = await tollgate('logs', large, '--json', '--lines', '2000')
    expect(text).toBe(`${lines.slice(-2_000).join('\n')}\n`)
  })

  it('follows a log and its replacement', async () => {
    const log = join(dirname(file), 'followed.log')
    await writeFile(log, `${line('info', 'one')}\n${line('info', 'two')}\n`)
    const child = spawn(process.execPath, [program, 'logs', log, '--follow'], {
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    onTestFinished(async () => {
      const ended = once(child, 'exit')
      child.kill()
      await ended
    })
    let text = ''
    child.stdout.on('data', (chunk) => (text += String(chunk)))
    const shows = async (word: string): Promise<void> => {
      await expect.poll(() => text, { timeout: 30_000 }).toContain(word)
    }
    await shows('two')
    await appendFile(log, `${line('info', 'three')}\n`)
    await shows('three')
    await writeFile(log, `${line('info', 'new')}\n`)
    await shows('new')
    expect(text.match(/two/g)).toHaveLength(1)
  }, 100_000)

  it('reads the standard input', async () => {
    const options = { input: `${entries.join('\n')}\nno log\n`, encoding: 'utf8' } as const
    const text = execFileSync(process.execPath, [program, 'logs', '-', '--level', 'warn'], options)
    expect(text).toMatch(/WARN[^]*ERROR[^]*no log\n$/)
    expect(text).not.toContain('served')
  })

  it.each([
    [['--level', 'loud'], 2, '--level must be one of: trace'],
    [['--lines', '0'], 2, '--lines must be a whole number from 1'],
    [['a', 'b'], 2, 'logs takes one FILE'],
    [['/nowhere/tollgate.log'], 1, 'cannot read /nowhere/tollgate.log (ENOENT)'],
  ])('refuses %j', async (argv, code, message) => {
    expect(await tollgate('logs', ...argv)).toEqual({
      code,
      text: expect.stringContaining(message),
    })
  })
})

describe('tollgate completion', () => {
  it('completes commands, verbs and options in bash', async () => {
    const { text } = await tollgate('completion', 'bash')
    expect(text).toContain('complete -o default -F _tollgate tollgate ./tollgate')
    const after = (...words: string[]) =>
      execFileSync(
        'bash',
        [
          '-c',
          `${text}\nCOMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _tollgate; printf '%s\\n' "\${COMPREPLY[@]}"`,
          'bash',
          ...words,
        ],
        { encoding: 'utf8' },
      )
        .trim()
        .split('\n')
    expect(after('tollgate', 'sta')).toEqual(['start', 'status'])
    expect(after('./tollgate', 'issuer', '')).toEqual(['list', 'add', 'remove', 'check'])
    expect(after('tollgate', 'outbox', 'r')).toEqual(['retry'])
    expect(after('tollgate', 'plan', 'create', '--mark')).toEqual(['--markup-percent'])
    expect(after('tollgate', 'help', 'whati')).toEqual(['whatif'])
  })

  it('has a script for zsh and for fish', async () => {
    expect((await tollgate('completion', 'zsh')).text).toMatch(
      /^autoload .*bashcompinit[^]*complete /,
    )
    const { text } = await tollgate('completion', 'fish')
    for (const name of Object.keys(commands)) expect(text).toContain(` ${name}`)
    expect(text).toMatch(/__fish_seen_subcommand_from rate; .* -f -a 'set'\n/)
    expect(text).toContain("-n '__fish_seen_subcommand_from issuer' -l file\n")
  })

  it.each([[[]], [['powershell']], [['bash', 'zsh']]])('refuses %j', async (argv) => {
    expect((await tollgate('completion', ...argv)).code).toBe(2)
  })
})

describe('the help of a command', () => {
  it.each(Object.entries(commands))('of %s has examples', async (name, { help }) => {
    expect(help.examples.length).toBeGreaterThan(0)
    const { text } = await tollgate(name, '--help')
    expect(text).toMatch(/^Usage\n/)
    for (const example of help.examples) {
      expect(text).toContain(`\n  ${example}\n`)
      const [, own = ''] = example.split(`./tollgate ${name}`)
      const known = `${JSON.stringify(help)} --target --json`.replaceAll(
        JSON.stringify(example),
        '',
      )
      for (const flag of own.match(/(?<= )--[a-z-]+/g) ?? []) expect(known).toContain(flag)
    }
  })

  it('has colours on a terminal or when forced, but not with NO_COLOR', async () => {
    const help = async () => (await tollgate('app', '--help')).text
    vi.stubEnv('FORCE_COLOR', undefined)
    expect(await help()).not.toContain('\u001b')
    vi.stubEnv('FORCE_COLOR', '1')
    expect((await help()).startsWith('\u001b[1m')).toBe(true)
    expect((await tollgate('nothing')).text).toContain('\u001b[31mtollgate:')
    vi.stubEnv('FORCE_COLOR', undefined)
    const before = { isTTY: process.stdout.isTTY, getColorDepth: process.stdout.getColorDepth }
    const { getColorDepth } = WriteStream.prototype
    Object.assign(process.stdout, { isTTY: true, getColorDepth })
    vi.stubEnv('TERM', 'xterm-256color')
    // Remove variables of the test runner that would also decide on colours.
    for (const name of ['NO_COLOR', 'NODE_DISABLE_COLORS', 'CI', 'TF_BUILD', 'TMUX']) {
      vi.stubEnv(name, undefined)
    }
    expect(await help()).toContain('\u001b')
    vi.stubEnv('NO_COLOR', '1')
    expect(await help()).not.toContain('\u001b')
    Object.assign(process.stdout, before)
  })
})
