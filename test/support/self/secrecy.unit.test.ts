import {
  appendFileSync,
  existsSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { newSecret } from '../../../core/lib/crypto.ts'
import { createLog, silentLog } from '../../../core/lib/log.ts'
import { createSearch, searchRun, registerSecret, secretSettings } from '../run/secrecy.ts'

const jwt = ['{"alg":"RS256"}', '{"sub":"somebody"}', 'a signature']
  .map((part) => Buffer.from(part).toString('base64url'))
  .join('.')
const session = Buffer.from(Array.from({ length: 32 }, (_, i) => (i * 7) % 256)).toString(
  'base64url',
)

describe('createSearch', () => {
  it.each([
    ['a key', newSecret('svc_ak_')],
    ['a composite key', `app_${'0a'.repeat(12)}_${newSecret('svc_ak_')}`],
    ['a client secret', newSecret('svc_cs_')],
    ['a refresh token', newSecret('svc_rt_')],
    ['a webhook secret', newSecret('')],
    ['a JWT', jwt],
    ['a session', session],
    ['Basic credentials', `Basic ${Buffer.from('m2m_0123:secret-secret').toString('base64')}`],
    ['a Bearer', 'bearer abcdefghijklmnop'],
  ])('finds %s by its form and hides it', (_what, secret) => {
    const [leak] = createSearch([])(JSON.stringify({ msg: `it was ${secret}`, level: 'info' }))
    expect(leak?.line).toContain('***')
    expect(leak?.line).not.toContain(secret)
  })

  it('finds recorded secrets', () => {
    const search = createSearch(['a long enough password', 'correct-horse'])
    const what = 'a secret of the tests'
    expect(search('{"why":"a long enough password was wrong"}')).toEqual([
      { what, line: '{"why":"*** was wrong"}' },
    ])
    expect(search('{"why":"correct-horse"}')).toEqual([{ what, line: '{"why":"***"}' }])
  })

  it('ignores text without secrets', () => {
    const lines = [
      '{"level":"info","route":"/api/v1/apps/:clientId/users","clientId":"app_0123456789abcdef01234567","correlationId":"0192f3a0-0000-7000-8000-000000000000"}',
      '{"msg":"send the M2M client id and secret as HTTP Basic, or a machine token as Bearer"}',
      '{"authorization":"[redacted]"}',
      `{"hash":"${'0123456789abcdef'.repeat(4)}"}`,
    ]
    expect(lines.flatMap(createSearch(['something else', 'correct-horse']))).toEqual([])
  })

  it('searches every file of a run and counts lines and secrets', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'tollgate-secrecy-'))
    writeFileSync(join(folder, '1.secrets'), '"correct horse battery"\n"another one"\n')
    writeFileSync(join(folder, '1.log'), '{"msg":"up"}\n{"msg":"down"}\n')
    writeFileSync(join(folder, '2.log'), '{"msg":"correct horse battery"}\n')
    appendFileSync(join(folder, '2.secrets'), '"another one"\n')
    const { lines, secrets, leaks } = await searchRun(folder)
    expect({ lines, secrets, leaks: leaks.map(({ line }) => line) }).toEqual({
      lines: 3,
      secrets: 2,
      leaks: ['{"msg":"***"}'],
    })
    expect(existsSync(folder)).toBe(false)
  })
})

/** Returns what this process has recorded so far, of one kind. */
function recorded(kind: 'log' | 'secrets'): string {
  const folder = process.env['TOLLGATE_TEST_LOGS'] ?? ''
  return readdirSync(folder)
    .filter((file) => file === `${process.pid}.${kind}`)
    .map((file) => readFileSync(join(folder, file), 'utf8'))
    .join('')
}

describe('the recorded logs and secrets', () => {
  it('include every log, silent ones too, with the redaction of production', () => {
    const lines: string[] = []
    createLog({ level: 'info', name: 'told' }, { write: (line) => void lines.push(line) }).info(
      'told to somebody',
    )
    silentLog().debug({ secret: newSecret('svc_cs_') }, 'told to nobody')
    expect(lines).toHaveLength(1)
    expect(recorded('log')).toContain('told to somebody')
    expect(recorded('log')).toContain('"secret":"[redacted]","msg":"told to nobody"')
  })

  it('include recorded secrets and the secret settings of a process', () => {
    expect(registerSecret('one that is long enough')).toBe('one that is long enough')
    secretSettings({
      CORE_TOKEN: 'the token of core',
      SECRET_PEPPERS: 'p1:pepper one two,p2:pepper three',
      CORE_PORT: 'not-a-secret-port',
    })
    for (const secret of [
      'one that is long enough',
      'the token of core',
      'pepper one two',
      'pepper three',
    ])
      expect(recorded('secrets')).toContain(`"${secret}"\n`)
    expect(recorded('secrets')).not.toContain('not-a-secret-port')
  })
})
