import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { openLogFile } from '../../../deploy/all-in-one/log-file.ts'

describe('the log file', () => {
  let directory: string
  beforeEach(async () => {
    directory = await mkdtemp(join(tmpdir(), 'tollgate-log-'))
  })
  afterEach(() => rm(directory, { recursive: true, force: true }))

  it('has all lines from before it was closed, and drops later ones without an error', async () => {
    const path = join(directory, 'logs', 'tollgate.log')
    const file = await openLogFile(path, { level: 'info' })
    file.log.info('running')
    file.log.debug('not asked for')
    file.log.warn({ reason: 'drained' }, 'stopping')
    file.close()
    expect(() =>
      file.log.error({ err: new Error('the connection was ended') }, 'left behind'),
    ).not.toThrow()
    const lines = (await readFile(path, 'utf8'))
      .trim()
      .split('\n')
      .map((line): unknown => JSON.parse(line))
    expect(lines).toEqual([
      expect.objectContaining({ msg: 'running' }),
      expect.objectContaining({ msg: 'stopping', reason: 'drained' }),
    ])
  })

  it('has the lines of one turn soon after it, in order', async () => {
    const path = join(directory, 'tollgate.log')
    const file = await openLogFile(path, { level: 'info' })
    for (const msg of ['one', 'two', 'three']) file.log.info(msg)
    await expect
      .poll(async () => (await readFile(path, 'utf8')).match(/"msg":"\w+"/g), { timeout: 10_000 })
      .toEqual(['"msg":"one"', '"msg":"two"', '"msg":"three"'])
    file.close()
  })

  it('reports in one clear line that it cannot be opened', async () => {
    await writeFile(join(directory, 'file'), '')
    await expect(
      openLogFile(join(directory, 'file', 'tollgate.log'), { level: 'info' }),
    ).rejects.toThrow(/^cannot write the log .*tollgate\.log \(/)
  })
})
