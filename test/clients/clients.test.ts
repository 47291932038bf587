import { execFile } from 'node:child_process'
import { cp, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Real, type RealApp, startReal } from '../gateway/real.ts'

const here = import.meta.dirname
const modules = join(here, '../../node_modules')
/**
 * A Python with test/clients/requirements.txt, set up by .ci/services.sh. CI fails if a test is
 * skipped.
 */
const python = process.env['TEST_PYTHON']
const round = { externalUserId: 'grace', micros: '5000000', isUnknown: true }

const strict = {
  strict: true,
  noUncheckedIndexedAccess: true,
  exactOptionalPropertyTypes: true,
  module: 'nodenext',
  target: 'esnext',
  noEmit: true,
  allowImportingTsExtensions: true,
}

let real: Real
let app: RealApp
let directory: string
beforeAll(async () => {
  real = await startReal()
  app = await real.newApp('clients')
  directory = await mkdtemp(join(tmpdir(), 'tollgate-clients-'))
  const document = await fetch(`${real.url}/api/v1/openapi.json`)
  await writeFile(join(directory, 'openapi.json'), await document.text())
})
afterAll(async () => {
  await real.stop()
  await rm(directory, { recursive: true, force: true })
})

/** Runs a program in the directory. On failure, throws its whole output. */
async function run(program: string, ...args: readonly string[]): Promise<string> {
  const env = { ...process.env, PATH: `${dirname(program)}:${process.env['PATH'] ?? ''}` }
  const options = { cwd: directory, env, maxBuffer: 64 * 1024 * 1024 }
  try {
    return (await promisify(execFile)(program, [...args], options)).stdout
  } catch (error) {
    const { stdout, stderr } = Object(error)
    throw new Error(`${program} ${args.join(' ')}\n${stdout}\n${stderr}`, { cause: error })
  }
}

describe('client generated from the document', () => {
  it('compiles and completes a round in TypeScript without casts', async () => {
    await symlink(modules, join(directory, 'node_modules'))
    await run(process.execPath, join(here, 'generate.mjs'), 'openapi.json', 'api.ts')
    await cp(join(here, 'program.mts'), join(directory, 'program.mts'))
    expect(await readFile(join(directory, 'program.mts'), 'utf8')).not.toMatch(
      / as [a-zA-Z]|: any|@ts-|<any>|!\./,
    )
    await writeFile(
      join(directory, 'tsconfig.json'),
      JSON.stringify({ compilerOptions: { ...strict, types: ['node'] }, files: ['program.mts'] }),
    )
    await writeFile(join(directory, 'package.json'), '{"type":"module"}')
    await run(join(modules, '.bin/tsc'), '--project', '.')
    const output = await run(process.execPath, 'program.mts', real.url, app.clientId, app.basic)
    expect(JSON.parse(output)).toEqual(round)
  }, 120_000)

  it.skipIf(python === undefined)(
    'compiles and completes a round in Python without casts',
    async () => {
      const bin = dirname(python ?? '')
      await writeFile(join(directory, 'config.yml'), 'literal_enums: true\npost_hooks: []\n')
      const out = join(directory, 'tollgate_client')
      const generate = ['generate', '--path', 'openapi.json', '--config', 'config.yml']
      await run(
        join(bin, 'openapi-python-client'),
        ...generate,
        '--meta',
        'none',
        '--output-path',
        out,
      )
      await cp(join(here, 'program.py'), join(directory, 'program.py'))
      expect(await readFile(join(directory, 'program.py'), 'utf8')).not.toMatch(
        /cast\(|: Any|type: ignore/,
      )
      // Next to the libraries, because it mostly holds their types. mypy checks it against the
      // sources.
      const cache = join(bin, '../.mypy_cache')
      await run(join(bin, 'mypy'), '--strict', '--cache-dir', cache, 'program.py')
      const basic = app.basic.replace('Basic ', '')
      const output = await run(join(bin, 'python'), 'program.py', real.url, app.clientId, basic)
      expect(JSON.parse(output)).toEqual(round)
    },
    240_000,
  )
})
