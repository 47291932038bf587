import { afterEach, expect, it, vi } from 'vitest'
import { main } from '../../../deploy/cli/main.ts'

afterEach(() => vi.restoreAllMocks())

it.each([
  ['--version', 0, /^tollgate \d+\.\d+\.\d+\n$/],
  ['help rate', 0, /^tollgate rate set USD_PER_ETH/],
  ['help', 0, /Exit codes: 0 success, 1 failure/],
  ['statsu', 2, /did you mean status\?/],
  ['rate set 3000 --sorce desk', 2, /'--sorce'; did you mean --source\?/],
  ['zzzzzzzz', 2, /^tollgate: there is no command "zzzzzzzz"; see/],
])('answers %s', async (line, expected, text) => {
  const printed: string[] = []
  const keep = (chunk: unknown) => printed.push(String(chunk)) > 0
  vi.spyOn(process.stdout, 'write').mockImplementation(keep)
  vi.spyOn(process.stderr, 'write').mockImplementation(keep)
  const code = await main(line.split(' '))
  vi.restoreAllMocks()
  expect([code, printed.join('')]).toEqual([expected, expect.stringMatching(text)])
})
