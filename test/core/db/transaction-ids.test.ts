import { execFile } from 'node:child_process'
import { chmod, chown, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { describe, expect, it, onTestFinished, vi } from 'vitest'
import { nextTransaction, resetCommand } from '../../../core/db/whole-tables.ts'
import { createPool } from '../../../core/lib/sql.ts'
import { freePorts } from '../../support/deployment/processes.ts'
import { nobody, startProgram } from '../../support/run/programs.ts'
import { debianPostgres } from '../../support/run/replica.ts'

const run = promisify(execFile)

describe('the command for transaction ids that are far ahead', () => {
  it.each([
    [30_000_000n, '--epoch=0 --next-transaction-id=30408704'],
    [2n ** 31n, '--epoch=1 --next-transaction-id=1048576'],
    [2n ** 32n, '--epoch=1 --next-transaction-id=1048576'],
    [5n * 2n ** 32n + 7n, '--epoch=5 --next-transaction-id=1048576'],
  ])('names an id from %s on with which a server starts', (through, options) => {
    expect(resetCommand(through)).toBe(`pg_resetwal ${options} -D DIRECTORY`)
  })
})

describe.runIf(debianPostgres)('a new cluster after the command', () => {
  it('starts, works, and has passed the ids', { timeout: 60_000 }, async () => {
    const bin = debianPostgres ?? ''
    const folder = await mkdtemp(join(tmpdir(), 'tollgate-ids-'))
    onTestFinished(() => rm(folder, { recursive: true, force: true }))
    if (nobody) await chown(folder, nobody.uid, nobody.gid)
    await chmod(folder, 0o711)
    const data = join(folder, 'data')
    const options = { cwd: folder, ...nobody }
    await run(join(bin, 'initdb'), ['-D', data, '-U', 'tollgate', '-A', 'trust', '-N'], options)
    const through = 3n * 2n ** 32n + 900_000_000n
    const [program = '', ...given] = resetCommand(through).replace('DIRECTORY', data).split(' ')
    await run(join(bin, program), given, options)
    const [port = 0] = await freePorts(1)
    const settings = [`port=${port}`, 'listen_addresses=127.0.0.1', 'unix_socket_directories=']
    const server = await startProgram(
      join(bin, 'postgres'),
      ['-D', data, ...settings.flatMap((setting) => ['-c', setting])],
      { port, cwd: folder },
    )
    onTestFinished(() => server.stop('SIGQUIT'))
    const url = `postgres://tollgate@127.0.0.1:${port}/postgres`
    const pool = createPool({ url, name: 'ids', max: 1, statementTimeoutMs: 0 })
    // The port is open before the server accepts clients.
    await vi.waitFor(() => pool.query('select'), { timeout: 30_000, interval: 100 })
    expect(await nextTransaction(pool)).toBeGreaterThanOrEqual(through)
    await pool.query('create table kept (id int)')
    await pool.query('insert into kept values (1)')
    await pool.query('vacuum kept')
    expect((await pool.query('select id from kept')).rows).toEqual([{ id: 1 }])
    await pool.end()
  })
})
