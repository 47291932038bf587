import { setTimeout as sleep } from 'node:timers/promises'
import { Client } from 'pg'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { GrantType, TokenType } from '../../../proto/oauth.ts'
import {
  type Lineage,
  type Pages,
  createLineage,
  createPages,
} from '../../support/deployment/lineage.ts'
import type { Answer, Split } from '../../support/deployment/split.ts'
import { startSplit } from '../../support/deployment/split.ts'

let split: Split
let pages: Pages

beforeAll(async () => {
  split = await startSplit({ redisUrl: null })
  pages = createPages(split)
})
afterAll(async () => {
  pages?.close()
  await split?.stop()
})

async function untilWaiting(watcher: Client): Promise<void> {
  for (const end = Date.now() + 20_000; Date.now() < end; await sleep(10)) {
    const { rowCount } = await watcher.query(
      `select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`,
    )
    if (rowCount) return
  }
  throw new Error('no statement waits for the lock')
}

/**
 * Holds `lock` until `issue`, which has passed its checks, waits for it. Then runs `end` and lets
 * `issue` continue.
 */
async function during(
  lock: { readonly sql: string; readonly values: readonly string[] },
  issue: () => Promise<Answer>,
  end: () => Promise<unknown>,
): Promise<Answer> {
  const holder = new Client({ connectionString: split.databaseUrl })
  await holder.connect()
  try {
    await holder.query('begin')
    await holder.query(lock.sql, [...lock.values])
    const issued = issue()
    await untilWaiting(holder)
    await end()
    // Tokens have whole seconds: after this, a token is dated later than the end.
    await sleep(1_100)
    await holder.query('commit')
    return await issued
  } finally {
    await holder.end()
  }
}

const appOf = `(select app_id from clients where client_id = $1)`
const membersSql = `select from members where app_id = ${appOf} for update`
/** Read for the balance, after the exchanged token was verified. */
const balances = { sql: 'lock table balances in access exclusive mode', values: [] }

const membersOf = ({ clientId }: Lineage) => ({ sql: membersSql, values: [clientId] })

const tokenOf = ({ body }: Answer, name: string): string => String(body[name] ?? '')

/** Returns the issued tokens that some endpoint still accepts; empty if the request was refused. */
async function accepted({ app }: Lineage, { body }: Answer): Promise<string[]> {
  const tokens = ['access_token', 'refresh_token'].flatMap((name) => body[name] ?? []).map(String)
  const isAccepted = async (token: string): Promise<boolean> => {
    const path = '/api/v1/oidc/token/introspection'
    const state = await split.rest('POST', path, { authorization: app.basic, form: { token } })
    return state.body['active'] === true || (await split.authorize(token)) === 200
  }
  const verdicts = await Promise.all(tokens.map(isAccepted))
  return tokens.filter((_token, index) => verdicts[index])
}

const ends: readonly (readonly [string, (lineage: Lineage) => Promise<unknown>])[] = [
  ['a password reset', ({ email }) => pages.resetPassword(email)],
  ['logging out everywhere', ({ sessionToken }) => pages.logOutEverywhere(sessionToken)],
]

describe.each(ends)('tokens issued while %s is committed', (_what, end) => {
  it('are void if they come from a code', async () => {
    const lineage = await createLineage(split, pages)
    const code = await pages.authorize(lineage.clientId, lineage.sessionToken)
    const login = await during(
      membersOf(lineage),
      () => lineage.redeem(code),
      () => end(lineage),
    )
    expect(await accepted(lineage, login)).toEqual([])
    const again = await lineage.token({
      grant_type: 'refresh_token',
      client_id: lineage.clientId,
      refresh_token: tokenOf(login, 'refresh_token'),
    })
    expect(again.status).toBe(400)
  })

  it('are void if they are a signer session', async () => {
    const lineage = await createLineage(split, pages)
    const exchange = {
      grant_type: GrantType.tokenExchange,
      subject_token: lineage.values.access,
      subject_token_type: TokenType.accessToken,
    }
    const opened = await during(
      balances,
      () => lineage.token(exchange, lineage.app.basic),
      () => end(lineage),
    )
    expect(await accepted(lineage, opened)).toEqual([])
  })
})

it('ends a login that begins while its membership ends', async () => {
  const lineage = await createLineage(split, pages)
  const code = await pages.authorize(lineage.clientId, lineage.sessionToken)
  let removal: Promise<unknown> = Promise.resolve()
  const login = await during(
    membersOf(lineage),
    () => lineage.redeem(code),
    async () => {
      removal = lineage.removeOwner()
    },
  )
  await removal
  expect(await accepted(lineage, login)).toEqual([])
})
