import { createHash } from 'node:crypto'
import { beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { seal } from '../../../core/lib/crypto.ts'
import { connectCore } from '../../../deploy/cli/client.ts'
import { type TestCore, serviceToken } from '../../core/support.ts'
import { registerSecret } from '../../support/run/secrecy.ts'
import { app, core, setUpCli, tollgate } from './support.ts'

const old = registerSecret('key-encryption-key-of-last-year-0123456789')
const current = registerSecret('key-encryption-key-of-this-year-0123456789')
const rotation = { KEY_ENCRYPTION_KEY: current, KEY_ENCRYPTION_KEYS_OLD: old }

setUpCli({ KEY_ENCRYPTION_KEY: old })
beforeAll(async () => {
  await core.as(app.basic).upsertUser({ clientId: app.clientId, externalUserId: 'ada' })
})

const createKey = (rpcs: ReturnType<TestCore['as']>, idempotencyKey: string) =>
  rpcs.createKey({ clientId: app.clientId, externalUserId: 'ada', idempotencyKey })

/** Runs the command against a core; returns its output and exit code. */
async function rewrap(target: string, ...options: string[]) {
  const { code, text } = await tollgate('keys', 'rewrap', ...options, '--json', '--target', target)
  return { code, ...JSON.parse(text) }
}

/** Seals a reply in the format from before keys were derived for each purpose. */
async function sealAsBefore(key: string): Promise<void> {
  const scope = `${app.m2mClientId}:keys`
  const whole = createHash('sha256').update(old).digest()
  const { rows } = await core.sql.query(
    'select sealed_reply from idempotency_keys where scope = $1 and key = $2',
    [scope, key],
  )
  expect(rows).toHaveLength(1)
  const reply = Buffer.from(JSON.stringify({ keyId: 'from before' }))
  await core.sql.query(
    'update idempotency_keys set sealed_reply = $3 where scope = $1 and key = $2',
    [scope, key, seal(reply, whole, `idempotency:${scope}:${key}`)],
  )
}

describe('a new key-encryption key', () => {
  it('rewraps everything while another core runs, and replaces the old key', async () => {
    const keys = []
    for (let index = 0; index < 5; index++)
      keys.push(await createKey(core.as(app.basic), `key-${index}`))
    await createKey(core.as(app.basic), 'before')
    await sealAsBefore('before')
    await expect(core.startAnother({ KEY_ENCRYPTION_KEY: current })).rejects.toThrow(
      /KEY_ENCRYPTION_KEYS_OLD.*the key [0-9a-f]{12} sealed it/,
    )

    const next = await core.startAnother(rotation)
    const check = await rewrap(next.core.target, '--check')
    expect(check).toMatchObject({ code: 1, done: false, rewrapped: 0 })
    expect(check.sealed.map((row: { table: string }) => row.table)).toEqual(
      expect.arrayContaining(['signing_keys', 'idempotency_keys']),
    )
    // The core with the old key keeps running, and its own answers must stay readable.
    const [, late] = await Promise.all([
      rewrap(next.core.target),
      createKey(core.as(app.basic), 'late'),
    ])
    const done = await rewrap(next.core.target)
    expect(done).toMatchObject({ code: 0, done: true })
    expect(await rewrap(next.core.target, '--check')).toMatchObject({ code: 0, rewrapped: 0 })

    const alone = await core.startAnother({ KEY_ENCRYPTION_KEY: current })
    for (const [index, key] of keys.entries())
      expect(await createKey(alone.as(app.basic), `key-${index}`)).toEqual(key)
    expect(await createKey(alone.as(app.basic), 'late')).toEqual(late)
    expect(await createKey(alone.as(app.basic), 'before')).toMatchObject({ keyId: 'from before' })
    const { rows } = await core.sql.query(
      `select sum((details->>'rewrapped')::integer)::integer as count from audit_log where action = 'sealed_values_rewrapped'`,
    )
    expect(rows[0].count).toBeGreaterThanOrEqual(9)
  })

  it('continues after a kill, while answers are written and read', async () => {
    const next = await core.startAnother(rotation)
    const [before, after] = [core.as(app.basic), next.as(app.basic)]
    const grant = (rpcs: ReturnType<TestCore['as']>, n: number) =>
      rpcs.createGrant({
        clientId: app.clientId,
        externalUserId: 'ada',
        amountUsdMicros: '1',
        source: 'manual',
        idempotencyKey: `killed-${n}`,
      })
    const many = Array.from({ length: 450 }, (_, n) => n)
    const grants = await Promise.all(many.map((n) => grant(before, n)))
    const operator = connectCore({ target: next.core.target, token: serviceToken })
    onTestFinished(() => operator.close())
    // The command requests one batch after the other, so a kill means that it requests no more.
    let cursor = ''
    for (const batch of [0, 1]) {
      const [step] = await Promise.all([
        operator.sealing.rewrap({ cursor }),
        grant(before, 1_000 + batch),
        ...many.slice(batch * 40, batch * 40 + 40).map(async (n) => {
          expect(await grant(after, n)).toEqual(grants[n])
        }),
      ])
      cursor = step.cursor
    }
    expect(cursor).not.toBe('')
    expect(await rewrap(next.core.target, '--check')).toMatchObject({ code: 1, done: false })
    // Start again, in two processes at once.
    await Promise.all([rewrap(next.core.target), operator.sealing.rewrap({ cursor: '' })])
    expect(await rewrap(next.core.target, '--check')).toMatchObject({ code: 0, done: true })
    const alone = (await core.startAnother({ KEY_ENCRYPTION_KEY: current })).as(app.basic)
    const replies = await Promise.all(many.map((n) => grant(alone, n)))
    expect(replies).toEqual(grants)
  }, 60_000)

  it('leaves values that no configured key opens, and reports them', async () => {
    await core.sql.query(
      `insert into idempotency_keys (scope, key, request_hash, sealed_reply, created_at) values ('lost', 'lost', '', $1, now())`,
      [Buffer.alloc(60, 7)],
    )
    const other = await core.startAnother(rotation)
    expect(await rewrap(other.core.target)).toMatchObject({ code: 1, done: false, rewrapped: 0 })
    await core.sql.query(`delete from idempotency_keys where scope = 'lost'`)
    expect(await rewrap(other.core.target)).toMatchObject({ code: 0, done: true })
  })
})
