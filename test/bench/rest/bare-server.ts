import { randomBytes, randomUUID } from 'node:crypto'
import fastify from 'fastify'
import { Pool, type PoolClient } from 'pg'
import { answerQuestions, cpuMs } from '../helper.ts'
import { type Insert, insertLike } from './insert-like.ts'

/**
 * Does the minimum of a service on fastify for the same answers: no callers, no checks, no log. A
 * read is one prepared statement; a write inserts the same rows in one transaction, with a prepared
 * statement for each. Arguments: the database, the id of the app, and the id of a user with the
 * usual rows.
 */
const [url = '', appId = '', userId = ''] = process.argv.slice(2)
// As many connections as core has.
const pool = new Pool({ connectionString: url, max: 16 })
const app = fastify()

const like = (table: string, where: string, fresh: readonly string[]): Promise<Insert> =>
  insertLike(pool, { table, where: `app_id = '${appId}' and ${where}`, fresh })
const ofUser = `user_id = '${userId}'`
const audited = (action: string): Promise<Insert> =>
  like('audit_log', `action = '${action}'`, ['id'])

const user = {
  user: await like('end_users', `id = '${userId}'`, ['id', 'external_user_id']),
  subscription: await like('subscriptions', ofUser, ['user_id', 'id']),
  balance: await like('balances', ofUser, ['user_id']),
  grant: await like('grants', `${ofUser} and kind = 'included'`, ['user_id', 'id']),
  entry: await like('ledger_entries', `${ofUser} and seq = 1`, ['user_id', 'cause_id']),
  audit: await audited('app_user_upserted'),
}
const credit = {
  grant: await like('grants', `${ofUser} and kind = 'grant'`, [
    'user_id',
    'id',
    'amount_attos',
    'remaining_attos',
  ]),
  entry: await like('ledger_entries', `${ofUser} and seq = 2`, ['user_id', 'cause_id', 'seq']),
  audit: await audited('allowance_granted'),
  reply: await insertLike(pool, {
    table: 'idempotency_keys',
    where: `scope like '%:grants'`,
    fresh: ['key'],
  }),
}
const key = {
  key: await like('api_keys', ofUser, ['id', 'secret_hash']),
  audit: await audited('api_key_created'),
}

const keySet = JSON.stringify({
  keys: [{ kty: 'RSA', kid: randomUUID(), n: randomBytes(256).toString('base64url') }],
})

app.get('/static', async (_, reply) => reply.type('application/json').send(keySet))

app.get<{ Params: { user: string } }>('/balances/:user', async ({ params }) => {
  const { rows } = await pool.query({
    name: 'balance',
    text: `select balance_attos, consumed_attos, granted_attos from balances where app_id = $1 and user_id = $2`,
    values: [appId, params.user],
  })
  return rows[0]
})

app.post('/users', async (request) => {
  const id = randomUUID()
  await transaction(async (db) => {
    await user.user(db, [id, id])
    await user.subscription(db, [id, randomUUID()])
    await user.balance(db, [id])
    await user.grant(db, [id, randomUUID()])
    await user.entry(db, [id, randomUUID()])
    await user.audit(db, [randomUUID()])
  })
  return { id, ...fields(request.body) }
})

app.post<{ Params: { user: string } }>('/credits/:user', async ({ params, body }) => {
  const id = randomUUID()
  const amount = '1000000000000'
  await transaction(async (db) => {
    const { rows } = await db.query<{ seq: string }>({
      name: 'head',
      text: `update balances set seq = seq + 1, balance_attos = balance_attos + $3, granted_attos = granted_attos + $3,
               topup_attos = topup_attos + $3
             where app_id = $1 and user_id = $2 returning seq`,
      values: [appId, params.user, amount],
    })
    await credit.grant(db, [params.user, id, amount, amount])
    await credit.entry(db, [params.user, id, rows[0]?.seq])
    await credit.audit(db, [randomUUID()])
    await credit.reply(db, [id])
  })
  return { id, ...fields(body) }
})

app.post('/keys', async ({ body }) => {
  const id = randomUUID()
  await transaction(async (db) => {
    await key.key(db, [id, randomBytes(32)])
    await key.audit(db, [randomUUID()])
  })
  return { id, ...fields(body) }
})

const fields = (body: unknown): object => (typeof body === 'object' && body !== null ? body : {})

async function transaction(work: (db: PoolClient) => Promise<void>): Promise<void> {
  const db = await pool.connect()
  try {
    await db.query('begin')
    await work(db)
    await db.query('commit')
  } finally {
    db.release()
  }
}

await app.listen({ host: '127.0.0.1', port: 0 })
const address = app.server.address()
const port = typeof address === 'object' && address ? address.port : 0
answerQuestions({ port }, async () => ({ cpuMs: cpuMs() }))
