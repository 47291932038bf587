import { type JSONWebKeySet, createLocalJWKSet, decodeProtectedHeader, jwtVerify } from 'jose'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { createSealing } from '../../../core/shared/sealing/sealing.ts'
import { createMetrics } from '../../../core/lib/metrics.ts'
import { createKeyRotation } from '../../../core/tokens/issuer/rotation.ts'
import { createSigningKeys } from '../../../core/tokens/issuer/signing-keys.ts'
import {
  type Rpcs,
  type TestApp,
  type TestCore,
  atOnce,
  bearerOf,
  day,
  issuer,
  outcome,
  refusal,
  second,
  startTestCore,
} from '../support.ts'

let core: TestCore
let app: TestApp
beforeEach(async () => {
  core = await startTestCore({ SIGNING_KEY_ROTATION_DAYS: '90' })
  app = await core.newApp()
  await core.as(app.basic).upsertUser({ clientId: app.clientId, externalUserId: 'ada' })
})
afterEach(() => core.stop())

const minutes = (count: number) => count * 60 * second
const states = async () =>
  (await core.asOperator().listSigningKeys()).keys.map(({ kid, status }) => ({ kid, status }))
const kidOf = (token: string) => String(decodeProtectedHeader(token).kid)
const mint = (rpcs: Rpcs) =>
  rpcs.mintUserToken({ clientId: app.clientId, externalUserId: 'ada', scope: undefined })

async function keySet(rpcs: Rpcs): Promise<JSONWebKeySet> {
  const { keys } = await rpcs.getJwks()
  return {
    keys: keys.map(({ kty, kid, alg, use, n, e }) => ({
      kty,
      kid,
      alg,
      use,
      n: n ?? '',
      e: e ?? '',
    })),
  }
}

/**
 * A verifier that fetches the key set only when its copy is five minutes old, never because of an
 * unknown key.
 */
function verifier(sources: readonly Rpcs[]) {
  let held: { at: number; keys: JSONWebKeySet } | null = null
  let turn = 0
  return async (token: string): Promise<void> => {
    const currentDate = core.clock.now()
    if (!held || currentDate.getTime() - held.at >= minutes(5)) {
      const source = sources[turn++ % sources.length]
      if (source) held = { at: currentDate.getTime(), keys: await keySet(source) }
    }
    await jwtVerify(token, createLocalJWKSet(held?.keys ?? { keys: [] }), {
      issuer,
      audience: issuer,
      currentDate,
    })
  }
}

describe('rotateSigningKeys', () => {
  it('activates the next key, keeps the retired one published and creates a new next key', async () => {
    const before = await states()
    expect(before.map(({ status }) => status)).toEqual(['active', 'next'])
    core.clock.advance(minutes(7))
    const { activeKid, nextKid } = await core.asOperator().rotateSigningKeys()
    expect(activeKid).toBe(before[1]?.kid)
    expect(await states()).toEqual(
      expect.arrayContaining([
        { kid: activeKid, status: 'active' },
        { kid: nextKid, status: 'next' },
        { kid: before[0]?.kid, status: 'retired' },
      ]),
    )
    expect(kidOf((await mint(core.as(app.basic))).accessToken)).toBe(activeKid)
  })

  it('is rejected until every verifier can have the next key, unless forced', async () => {
    core.clock.advance(minutes(5))
    const refused = await refusal(core.asOperator().rotateSigningKeys())
    expect(refused).toMatchObject({
      reason: 'CONFLICT',
      message: expect.stringContaining('2026-03-10T12:06:00.250Z'),
    })
    const { activeKid } = await core.asOperator().rotateSigningKeys({ force: true })
    expect(kidOf((await mint(core.as(app.basic))).accessToken)).toBe(activeKid)
  })

  it('deletes the retired key when its last token has expired', async () => {
    core.clock.advance(minutes(7))
    const [old] = await states()
    await core.asOperator().rotateSigningKeys()
    const { keys } = await core.asOperator().listSigningKeys()
    const retireAt = new Date(keys.find(({ status }) => status === 'retired')?.retireAt ?? '')
    // The longest token lifetime, the cache time of the key set, and one minute.
    expect(retireAt.getTime()).toBe(core.clock.now().getTime() + (3_600 + 300 + 60) * second)
    core.clock.set(new Date(retireAt.getTime() - second))
    expect((await keySet(core.as())).keys.map(({ kid }) => kid)).toContain(old?.kid)
    core.clock.advance(31 * second)
    expect((await keySet(core.as())).keys.map(({ kid }) => kid)).not.toContain(old?.kid)
  })

  it('adds an audit entry without an app', async () => {
    core.clock.advance(minutes(7))
    const { activeKid } = await core.asOperator().rotateSigningKeys()
    const { rows } = await core.sql.query(
      `select app_id, actor, details ->> 'to' as "to" from audit_log where action = 'signing_keys_rotated'`,
    )
    expect(rows).toEqual([{ app_id: null, actor: 'operator:test', to: activeKid }])
  })

  it('lets another core accept an unknown key immediately', async () => {
    const other = await core.startAnother()
    await core.asOperator().rotateSigningKeys({ force: true })
    await core.asOperator().rotateSigningKeys({ force: true })
    const { accessToken } = await mint(core.as(app.basic))
    expect(await outcome(other.as(bearerOf(accessToken)).getOwnBalance())).toBe('OK')
  })

  it('runs once under concurrent calls', async () => {
    const other = await core.startAnother()
    core.clock.advance(minutes(7))
    const outcomes = await atOnce(6, (index) =>
      outcome((index % 2 ? core : other).asOperator().rotateSigningKeys()),
    )
    // The first rotation creates a next key that is too young for the others.
    expect(outcomes.filter((each) => each === 'OK')).toHaveLength(1)
    expect(outcomes.filter((each) => each === 'CONFLICT')).toHaveLength(5)
    const { rows } = await core.sql.query(
      `select status, count(*)::int as keys from signing_keys group by status order by status`,
    )
    expect(rows).toEqual([
      { status: 'active', keys: 1 },
      { status: 'next', keys: 1 },
      { status: 'retired', keys: 1 },
    ])
  })
})

describe('1,000 tokens of two cores during three rotations', () => {
  it('all verify until their last second with a key set cached for five minutes', async () => {
    const other = await core.startAnother()
    const cores = [core.as(), other.as()]
    const verify = verifier(cores)
    const late = verifier(cores.toReversed())
    const kids = new Set<string>()
    let count = 0

    for (let step = 0; step < 20; step++) {
      const tokens = await atOnce(
        50,
        async (index) => (await mint((index % 2 ? core : other).as(app.basic))).accessToken,
      )
      count += tokens.length
      for (const token of tokens) {
        kids.add(kidOf(token))
        await verify(token)
      }
      if (step === 5 || step === 10 || step === 15)
        await (step % 2 ? other : core).asOperator().rotateSigningKeys()
      core.clock.advance(90 * second)
      for (const token of tokens) await late(token)
    }
    expect(count).toBe(1_000)
    expect(kids.size).toBe(4)
  })
})

describe('the rotation schedule', () => {
  it('rotates once on two cores when the active key is old enough', async () => {
    const sealing = createSealing(['sealing-key-of-the-core-tests-0123456789'])
    const rotationOf = (everyDays: number, metrics = createMetrics('test')) => {
      const shared = { pool: core.sql, now: core.clock.now, metrics }
      const signingKeys = createSigningKeys({ ...shared, sealing, alg: 'RS256' })
      return createKeyRotation({ ...shared, signingKeys, tokenTtlSecondsMax: 3_600, everyDays })
    }
    core.clock.advance(89 * day)
    expect(await rotationOf(90).rotateIfDue()).toBe(false)
    core.clock.advance(day)
    expect(await rotationOf(0).rotateIfDue()).toBe(false)
    const [one, two] = [rotationOf(90), rotationOf(90)]
    expect(
      (await Promise.all([one.rotateIfDue(), two.rotateIfDue()])).filter(Boolean),
    ).toHaveLength(1)
    expect(await one.rotateIfDue()).toBe(false)
    core.clock.advance(day)
    await one.tend()
    expect((await states()).map(({ status }) => status)).toEqual(['active', 'next'])
    const metrics = createMetrics('test')
    rotationOf(90, metrics)
    const text = await metrics.metrics()
    expect(text).toMatch(/^tollgate_tokens_signing_key_age_seconds\S* 86400$/m)
    expect(text).toMatch(/^tollgate_tokens_signing_key_max_age_seconds\S* 7776000$/m)
  })
})

describe('a changed TOKEN_ALG', () => {
  it('activates a key of the new algorithm and keeps older tokens valid', async () => {
    const before = await mint(core.as(app.basic))
    const old = await states()
    const changed = await core.startAnother({ TOKEN_ALG: 'ES256' })
    const after = await mint(changed.as(app.basic))
    const { keys } = await changed.asOperator().listSigningKeys()
    expect(keys.map(({ alg, status }) => [status, alg]).toSorted()).toEqual([
      ['active', 'ES256'],
      ['next', 'ES256'],
      ['retired', 'RS256'],
    ])
    const published = await changed.as().getJwks()
    expect(published.keys.map(({ alg, kty }) => [alg, kty]).toSorted()).toEqual([
      ['ES256', 'EC'],
      ['ES256', 'EC'],
      ['RS256', 'RSA'],
    ])
    expect(decodeProtectedHeader(after.accessToken)).toMatchObject({
      alg: 'ES256',
      kid: keys[0]?.kid,
    })
    expect(kidOf(before.accessToken)).toBe(old.find(({ status }) => status === 'active')?.kid)
    const jwks: JSONWebKeySet = JSON.parse(JSON.stringify(published))
    for (const { accessToken } of [before, after]) {
      await jwtVerify(accessToken, createLocalJWKSet(jwks), {
        issuer,
        currentDate: core.clock.now(),
      })
      // Both cores accept both tokens: each reloads its keys for an unknown key id.
      for (const rpcs of [changed.as(bearerOf(accessToken)), core.as(bearerOf(accessToken))])
        expect(await outcome(rpcs.checkCaller({ kind: 'user' }))).toBe('OK')
      core.clock.advance(6 * second)
    }
    const { rows } = await core.sql.query(
      "select actor from audit_log where action = 'signing_keys_rotated'",
    )
    expect(rows).toEqual([{ actor: 'TOKEN_ALG' }])
  })

  it('changes nothing at the next start, and adds keys once when two cores start together', async () => {
    const [one] = await atOnce(2, () => core.startAnother({ TOKEN_ALG: 'ES256' }))
    const kids = (await one?.asOperator().listSigningKeys())?.keys.map(({ kid }) => kid)
    const later = await core.startAnother({ TOKEN_ALG: 'ES256' })
    expect((await later.asOperator().listSigningKeys()).keys.map(({ kid }) => kid)).toEqual(kids)
    expect(kids).toHaveLength(3)
  })
})
