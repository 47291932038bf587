import { WriteStream } from 'node:tty'
import { afterEach, describe, expect, it, vi } from 'vitest'
import { commands } from '../../../deploy/cli/main.ts'
import { tollgate } from './support.ts'

afterEach(() => vi.unstubAllEnvs())

it.each([
  ['--version', 0, /^tollgate \d+\.\d+\.\d+\n$/],
  [
    'help rate',
    0,
    /^Usage\n {2}tollgate rate set USD_PER_ETH[^]*\n\nExamples\n {2}npx tollgate rate /,
  ],
  ['help', 0, /\n\nMoney\n {2}grant [^]*Exit codes: 0 success, 1 failure/],
  ['statsu', 2, /did you mean status\?/],
  ['hepl', 2, /did you mean help\?/],
  ['rate set 3000 --sorce desk', 2, /'--sorce'; did you mean --source\?/],
  ['zzzzzzzz', 2, /^tollgate: there is no command "zzzzzzzz"; see/],
])('answers %s', async (line, code, text) => {
  expect(await tollgate(...line.split(' '))).toEqual({ code, text: expect.stringMatching(text) })
})

describe('the help of a command', () => {
  it.each(Object.entries(commands))('of %s has examples of it', async (name, { help }) => {
    expect(help.examples.length).toBeGreaterThan(0)
    const { text } = await tollgate(name, '--help')
    expect(text).toMatch(/^Usage\n/)
    for (const example of help.examples) {
      expect(text).toContain(`\n  ${example}\n`)
      const [, own = ''] = example.split(`npx tollgate ${name}`)
      const known = `${JSON.stringify(help)} --target --json`.replaceAll(
        JSON.stringify(example),
        '',
      )
      for (const flag of own.match(/(?<= )--[a-z-]+/g) ?? []) expect(known).toContain(flag)
    }
  })

  it('has colours where they are forced, and none where nobody sees them or wants them', async () => {
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
    // What the process that runs the tests was given would decide otherwise.
    for (const name of ['NO_COLOR', 'NODE_DISABLE_COLORS', 'CI', 'TF_BUILD', 'TMUX']) {
      vi.stubEnv(name, undefined)
    }
    expect(await help()).toContain('\u001b')
    vi.stubEnv('NO_COLOR', '1')
    expect(await help()).not.toContain('\u001b')
    Object.assign(process.stdout, before)
  })
})
