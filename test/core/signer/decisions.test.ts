import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { newDecisionId } from '../../../proto/decision-id.ts'
import { createDecisions } from '../../../core/signer/decisions/service.ts'
import {
  DecisionCredential,
  DecisionSession,
} from '../../../proto/gen/ts-proto/tollgate/signer/v1/decisions.ts'
import { decisionOf } from '../../support/usage/decisions.ts'
import { type TestApp, type TestCore, day, outcome, refusal, startTestCore } from '../support.ts'

let core: TestCore
let acme: TestApp
beforeAll(async () => {
  core = await startTestCore()
  acme = await core.newApp()
})
afterAll(() => core.stop())

const now = () => core.clock.now()
const keep = async (...decisions: ReturnType<typeof decisionOf>[]): Promise<void> => {
  await core.as().recordDecisions({ decisions })
}

describe('recorded decision', () => {
  it('is returned as sent, with its explanation', async () => {
    const sent = decisionOf(now(), acme.clientId)
    await keep(sent)
    const { decision, explanation } = await core.asOperator().getDecision({ decisionId: sent.id })
    expect(decision).toEqual(sent)
    expect(explanation).toEqual([
      'Refused with 483 insufficient_balance (insufficient balance) by the sidecar sidecar-1 at 2026-03-10T12:00:00.250Z, in 0.21 ms.',
      'The credential is an API key, 0192f3a0-0000-7000-8000-000000000000.',
      `It identifies the user ada of ${acme.clientId}: from the sidecar's memory, verified 12.3 s before.`,
      'The session is 9f86d081, of type live: call 7, signed at 2026-03-10T12:00:00.123456789Z, 100 wei for a second.',
      'The time since call 6, which this sidecar recorded as signed at 2026-03-10T11:59:50Z, is charged.',
      'It costs at most 0.0033 USD, at 3000 USD for one ETH, observed 4 s before.',
      'The lease 0192f3a0-0000-7000-8000-000000000001 had 0.00001 of 0.5 USD left; core confirmed it 3.1 s before, and it ends in 24.9 s.',
      'Core reported 0.4 s before that 0 USD were neither lent nor pending.',
      'The data of core about the user was 0.3 s old.',
      'A call is refused when its bound exceeds the available money.',
    ])
  })

  it('is stored once when sent repeatedly', async () => {
    const sent = decisionOf(now(), acme.clientId)
    await keep(sent, sent)
    await keep({ ...sent, code: 'other' })
    const { decision } = await core.asOperator().getDecision({ decisionId: sent.id })
    expect(decision?.code).toBe('insufficient_balance')
  })

  it('accepts any text of a caller, without control characters', async () => {
    const sent = decisionOf(now(), 'no app\u0000', {
      session: DecisionSession.fromPartial({
        id: 'a\u0000b',
        type: '\ud800\u001b[2J'.repeat(1_000),
      }),
    })
    await keep(sent)
    const { decision } = await core.asOperator().getDecision({ decisionId: sent.id })
    expect(decision?.session).toMatchObject({ id: 'a?b' })
    expect(decision?.session?.type).toMatch(/^(\ufffd\?\[2J)+\ufffd?\??\[?2?$/)
    expect(decision?.session?.type.length).toBeLessThanOrEqual(512)
  })

  it('is rejected with an invalid id, or in a batch that is too large', async () => {
    const sent = decisionOf(now(), acme.clientId)
    expect(await outcome(keep({ ...sent, id: 'x' }))).toBe('REQUEST_INVALID')
    expect(await outcome(keep(...Array<typeof sent>(501).fill(sent)))).toBe('REQUEST_INVALID')
  })
})

describe('decisions of an app', () => {
  it('are visible to its own client only', async () => {
    const other = await core.newApp()
    const sent = decisionOf(now(), acme.clientId)
    await keep(sent)
    const read = ({ basic }: TestApp, clientId: string) =>
      core.as(basic).getDecision({ clientId, decisionId: sent.id })
    expect((await read(acme, acme.clientId)).decision).toEqual(sent)
    const foreign = await refusal(read(other, other.clientId))
    expect(foreign).toMatchObject({ reason: 'NOT_FOUND' })
    expect(await outcome(read(other, acme.clientId))).toBe('NOT_FOUND')
    const unknown = newDecisionId(now().getTime(), true)
    const absent = core
      .as(other.basic)
      .getDecision({ clientId: other.clientId, decisionId: unknown })
    expect(foreign.message).toBe((await refusal(absent)).message)
  })

  it('exclude decisions without an app, which only operators can read', async () => {
    const sent = decisionOf(now(), acme.clientId, {
      credential: DecisionCredential.fromPartial({ kind: 'missing' }),
    })
    await keep(sent)
    const { clientId, basic } = acme
    const owner = core.as(basic).getDecision({ clientId, decisionId: sent.id })
    expect(await outcome(owner)).toBe('NOT_FOUND')
    const { explanation } = await core.asOperator().getDecision({ decisionId: sent.id })
    expect(explanation).toContain('The credential is missing.')
  })
})

describe('list of decisions', () => {
  it('returns the newest first, filtered by app, user and code', async () => {
    const other = await core.newApp()
    const sent = [
      decisionOf(now(), other.clientId),
      decisionOf(now(), other.clientId, { code: 'user_inactive' }),
      decisionOf(now(), acme.clientId),
    ]
    for (const decision of sent) {
      core.clock.advance(1_000)
      await keep(decision)
    }
    const [first, second, third] = sent.map(({ id }) => id)
    const list = async (query: object = {}): Promise<string[]> =>
      (await core.asOperator().listDecisions(query)).decisions.map(({ id }) => id)
    expect((await list()).slice(0, 3)).toEqual([third, second, first])
    const { clientId } = other
    expect(await list({ clientId })).toEqual([second, first])
    expect(await list({ clientId, limit: 1 })).toEqual([second])
    expect(await list({ clientId, code: 'insufficient_balance' })).toEqual([first])
    expect(await list({ clientId, externalUserId: 'ben' })).toEqual([])
    expect(await list({ clientId, externalUserId: 'ada\u0000' })).toEqual([])
    expect(await list({ clientId: 'app_000000000000000000000000' })).toEqual([])
    expect(await outcome(core.asOperator().listDecisions({ limit: 101 }))).toBe('REQUEST_INVALID')

    const own = (of: string) => core.as(other.basic).listDecisions({ clientId: of })
    expect((await own(clientId)).decisions.map(({ id }) => id)).toEqual([second, first])
    expect(await outcome(own(acme.clientId))).toBe('NOT_FOUND')
  })
})

describe('missing decision', () => {
  const absence = async (decisionId: string): Promise<string> =>
    (await refusal(core.asOperator().getDecision({ decisionId }))).message

  it('is explained: unknown, not recorded, expired or invalid id', async () => {
    const at = now().getTime()
    expect(await absence(newDecisionId(at, true))).toMatch(/^there is no record/)
    expect(await absence(newDecisionId(at, false))).toMatch(/was not recorded/)
    expect(await absence(newDecisionId(at - 7 * day, true))).toMatch(/^records are kept for 7 days/)
    expect(await absence("'; drop table decisions")).toMatch(/24 hexadecimal digits/)
  })
})

describe('upkeep', () => {
  it('deletes decisions after seven days, and all but the newest of each app', async () => {
    const decisions = createDecisions({ pool: core.sql, now, max: 3 })
    const kept = async (ids: readonly string[]): Promise<number> => {
      const { rows } = await core.sql.query('select id from decisions where id = any($1)', [ids])
      return rows.length
    }
    const batch = async (clientId: string, count: number): Promise<string[]> => {
      const ids: string[] = []
      for (let i = 0; i < count; i++) {
        const { credential, ...sent } = decisionOf(now(), clientId)
        if (credential) await decisions.record([{ ...sent, credential }])
        ids.push(sent.id)
        core.clock.advance(1_000)
      }
      return ids
    }
    const other = await core.newApp()
    const [first, none, theirs] = [
      await batch(acme.clientId, 5),
      await batch('none', 4),
      await batch(other.clientId, 2),
    ]
    await decisions.deleteOld()
    expect([await kept(first), await kept(none), await kept(theirs)]).toEqual([3, 3, 2])
    expect(await kept(first.slice(-3))).toBe(3)

    core.clock.advance(7 * day - 2_500)
    await decisions.deleteOld()
    expect([await kept(first), await kept(none), await kept(theirs)]).toEqual([0, 0, 2])
  })

  it('deletes the decisions of a deleted app', async () => {
    const gone = await core.newApp()
    const sent = decisionOf(now(), gone.clientId)
    await keep(sent)
    await core.sql.query(
      'delete from apps where id = (select app_id from clients where client_id = $1)',
      [gone.clientId],
    )
    expect(await outcome(core.asOperator().getDecision({ decisionId: sent.id }))).toBe('NOT_FOUND')
  })
})
