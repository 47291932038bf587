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

  it('has what was logged until it was closed, and loses without harm what comes later', async () => {
    const path = join(directory, 'logs', 'tollgate.log')
    const file = await openLogFile(path, 'info')
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

  it('has the lines of one turn soon after it, in their order', async () => {
    const path = join(directory, 'tollgate.log')
    const file = await openLogFile(path, 'info')
    for (const msg of ['one', 'two', 'three']) file.log.info(msg)
    await expect
      .poll(async () => (await readFile(path, 'utf8')).match(/"msg":"\w+"/g), { timeout: 10_000 })
      .toEqual(['"msg":"one"', '"msg":"two"', '"msg":"three"'])
    file.close()
  })

  it('that cannot be opened is one clear line', async () => {
    await writeFile(join(directory, 'file'), '')
    await expect(openLogFile(join(directory, 'file', 'tollgate.log'), 'info')).rejects.toThrow(
      /^cannot write the log .*tollgate\.log \(/,
    )
  })
})
