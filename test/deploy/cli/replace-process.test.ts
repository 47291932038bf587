import { execFile } from 'node:child_process'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { promisify } from 'node:util'
import { expect, it, onTestFinished } from 'vitest'

const run = promisify(execFile)
const module = new URL('../../../deploy/cli/replace-process.ts', import.meta.url).href

const program = `
const { pid, execArgv, env } = process
console.log(JSON.stringify({ pid, execArgv, arenas: env.MALLOC_ARENA_MAX, trim: env.MALLOC_TRIM_THRESHOLD_, own: env.OWN }))`

it('replaces the process by a program, and keeps variables that are already set', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'tollgate-replace-'))
  onTestFinished(() => rm(folder, { recursive: true, force: true }))
  const [caller, file] = [join(folder, 'caller.mjs'), join(folder, 'program.mjs')]
  await writeFile(file, program)
  await writeFile(
    caller,
    `import { replaceProcess } from ${JSON.stringify(module)}
console.log(process.pid)
await replaceProcess({ file: new URL(${JSON.stringify(pathToFileURL(file).href)}), nodeOptions: ['--max-semi-space-size=8'] })`,
  )
  const env = { PATH: process.env['PATH'], OWN: 'x', MALLOC_TRIM_THRESHOLD_: '65536' }
  const { stdout, stderr } = await run(process.execPath, [caller], { env })
  const [pid = '', answer = ''] = stdout.trim().split('\n')
  expect(JSON.parse(answer)).toEqual({
    pid: Number(pid),
    execArgv: ['--max-semi-space-size=8'],
    arenas: '2',
    trim: '65536',
    own: 'x',
  })
  expect(stderr).toBe('')
})
