import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { text } from 'node:stream/consumers'
import { expect, it } from 'vitest'
import { createLog, setLogLevel } from '../../../core/lib/log.ts'
import { DomainError } from '../../../proto/errors.ts'

function logged(fields: object): Record<string, unknown> {
  const lines: string[] = []
  createLog({ level: 'info', name: 'test' }, { write: (line) => void lines.push(line) }).info(
    fields,
    'said',
  )
  return JSON.parse(lines.join(''))
}

it('has the level by name, and the time in ISO 8601', () => {
  const { level, time } = logged({})
  expect(level).toBe('info')
  expect(time).toMatch(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/)
  expect(Math.abs(Date.parse(String(time)) - Date.now())).toBeLessThan(60_000)
})

it('changes its level, and the level of its children, while it is in use', () => {
  const lines: string[] = []
  const log = createLog({ level: 'warn', name: 'test' }, { write: (line) => void lines.push(line) })
  const child = log.child({ process: 'core' })
  child.info('too early')
  setLogLevel(log, 'info')
  child.info('in time')
  log.info('too')
  expect(lines.map((line) => JSON.parse(line).msg)).toEqual(['in time', 'too'])
})

it('redacts only members with the name of a secret, at any depth of an object', () => {
  const fields = {
    token: 'a',
    deep: { apiKey: 'b', request: { headers: { authorization: 'c' }, cookie: 'd' } },
    list: ['kept'],
    tokens: 3,
    nothing: null,
  }
  const before = structuredClone(fields)
  expect(logged(fields)).toMatchObject({
    msg: 'said',
    name: 'test',
    token: '[redacted]',
    list: ['kept'],
    tokens: 3,
    nothing: null,
    deep: { apiKey: '[redacted]', request: { cookie: '[redacted]' } },
  })
  expect(fields).toEqual(before)
})

it('logs an outage of another process with its causes and without its stack', () => {
  const cause = new Error('connect ECONNREFUSED')
  const { err } = logged({ err: new DomainError('UNAVAILABLE', 'core does not answer', { cause }) })
  expect(err).toMatchObject({ message: 'core does not answer: connect ECONNREFUSED' })
  expect(err).not.toHaveProperty('stack')
})

it('logs an error with its stack and its members, without secrets', () => {
  const err = Object.assign(new Error('broken'), {
    code: 'E1',
    token: 'a',
    request: { secret: 'b' },
  })
  const line = logged({ err })
  expect(line['err']).toMatchObject({
    type: 'Error',
    message: 'broken',
    stack: expect.stringContaining('log.test.ts'),
    code: 'E1',
    token: '[redacted]',
  })
  expect(JSON.stringify(line)).not.toContain('"b"')
})

it('logs other thrown values unchanged, without secrets', () => {
  expect(logged({ err: 'just words' })['err']).toBe('just words')
  expect(logged({ err: undefined })).not.toHaveProperty('err')
  expect(logged({ err: { code: 7, secret: 'b' } })['err']).toEqual({
    code: 7,
    secret: '[redacted]',
  })
})

it('writes every line in order, including those right before the process exits or fails', async () => {
  const script = `import { createLog, setLogLevel } from './core/lib/log.ts'
    const log = createLog({ level: 'info', name: 'test' })
    log.info('one'); log.info('two')
    setTimeout(() => { log.info('three'); log.fatal('four'); log.info('five'); process.exit(3) }, 200)`
  const child = spawn(process.execPath, ['--input-type=module-typescript', '-e', script], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const [output, [code]] = await Promise.all([text(child.stdout), once(child, 'exit')])
  expect(code).toBe(3)
  expect(
    output
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line).msg),
  ).toEqual(['one', 'two', 'three', 'four', 'five'])
})
