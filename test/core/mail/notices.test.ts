import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type SmtpDouble, startSmtpServer } from '../../fakes/smtp.ts'
import { asRecord } from '../../gateway/support.ts'
import { registerSecret } from '../../support/run/secrecy.ts'
import { type Real, type RealApp, startReal } from '../../gateway/real.ts'
import { envelope } from '../metering/harness.ts'
import { eventually } from '../../support/waiting.ts'
import { startReceiver, status } from '../webhooks/receiver.ts'

let smtp: SmtpDouble
let real: Real

beforeAll(async () => {
  smtp = await startSmtpServer()
  const env = {
    SMTP_URL: `smtp://127.0.0.1:${smtp.port}`,
    MAIL_FROM: 'mail@svc.example',
    OUTBOUND_ALLOW: '127.0.0.1',
  }
  real = await startReal(env, { upkeepMs: 500 })
})
afterAll(async () => {
  await real.stop()
  smtp.stop()
})

/** The subjects of the address's mails, except about its logins. */
const subjectsTo = (email: string): string[] =>
  smtp
    .to(email)
    .map(({ headers }) => headers['subject'] ?? '')
    .filter((subject) => !subject.startsWith('Login'))

const waitFor = (email: string, count: number): Promise<string[]> =>
  eventually(
    async () => subjectsTo(email),
    (subjects) => subjects.length >= count,
  )

/** Returns the account of the app's owner as a user of the platform app. */
async function ownerOf({ clientId }: RealApp) {
  const { rows } = await real.core.sql.query<{ account: string; platform: string }>(
    `select m.account_id as account, p.client_id as platform
     from clients c
     join members m on m.app_id = c.app_id and m.role = 'owner'
     cross join platform_app
     join clients p on p.app_id = platform_app.app_id and p.kind = 'public'
     where c.client_id = $1`,
    [clientId],
  )
  const { account = '', platform = '' } = rows[0] ?? {}
  return { account, payer: { clientId: platform, externalUserId: `account:${account}` } }
}

describe('mails to owners', () => {
  it('report a balance that is low, and the end of access, once each', async () => {
    const app = await real.newApp('payer')
    const { account, payer } = await ownerOf(app)
    // The first charge creates the owner's account in the platform app.
    const ticket = {
      auth_id: `${app.clientId}:owner:${account}`,
      computed_fee: '1000000000000',
      session_id: 'owner',
      current_time: '2026-03-10T12:00:00Z',
    }
    await real.core.as().ingestEvents({ envelopes: [envelope(ticket)] })
    const debit = (micros: string) =>
      real.core.as().createAdjustment({
        ...payer,
        amountUsdMicros: `-${micros}`,
        uncovered: 'overage',
      })
    await debit('4500000')
    expect(await waitFor('payer@example.com', 1)).toEqual(['Your balance is low'])
    const [low] = smtp.to('payer@example.com').filter(({ text }) => text.includes('USD are left'))
    expect(low?.text).toMatch(/^0\.4\d USD are left/)
    await debit('100000')
    await debit('1000000')
    expect(await waitFor('payer@example.com', 2)).toEqual([
      'Your balance is low',
      'Calls of your apps are refused',
    ])
  })

  it('report a webhook endpoint that was switched off', async () => {
    const receiver = await startReceiver(status(410))
    const app = await real.newApp('hooked')
    const answer = await fetch(`${real.url}/api/v1/apps/${app.clientId}/webhook-endpoints`, {
      method: 'POST',
      headers: { ...app.session, 'content-type': 'application/json' },
      body: JSON.stringify({ url: receiver.url, eventTypes: ['user.created'] }),
    })
    expect(answer.status).toBe(201)
    await real.core.as(app.basic).upsertUser({ clientId: app.clientId, externalUserId: 'eve' })
    expect(await waitFor('hooked@example.com', 1)).toEqual(['A webhook of hooked was switched off'])
    receiver.stop()
  })

  it('report a secret that expires within seven days, once', async () => {
    const app = await real.newApp('rotated')
    const answer = await fetch(`${real.url}/api/v1/apps/${app.clientId}/credentials?target=m2m`, {
      method: 'POST',
      headers: app.session,
    })
    const { clientSecret } = asRecord(await answer.json())
    registerSecret(String(clientSecret))
    expect(await waitFor('rotated@example.com', 1)).toEqual(['A secret of rotated expires'])
    const text = smtp.to('rotated@example.com').at(-1)?.text
    expect(text).toContain(`of the client ${app.m2mClientId}`)
    expect(text).toContain('2026-03-11 12:00 UTC')
    const { rows } = await real.core.sql.query(
      "select from mails where kind = 'secret_expiring' and email = 'rotated@example.com'",
    )
    expect(rows).toHaveLength(1)
  })

  it("report the ends of an app's signer and webhook secrets, once each", async () => {
    const app = await real.newApp('holder')
    const post = async (path: string, body: object) => {
      const answer = await fetch(`${real.url}/api/v1/apps/${app.clientId}/${path}`, {
        method: 'POST',
        headers: { ...app.session, 'content-type': 'application/json' },
        body: JSON.stringify(body),
      })
      expect(answer.status).toBeLessThan(300)
      const made = asRecord(await answer.json())
      if (typeof made['secret'] === 'string') registerSecret(made['secret'])
      return made
    }
    await post('signer-secrets', { purpose: 'decisions' })
    await post('signer-secrets', { purpose: 'decisions', overlapSeconds: 3_600 })
    const hook = { url: 'https://shop.example/hooks', signing: 'hmac' }
    const endpoint = String(asRecord((await post('webhook-endpoints', hook))['endpoint'])['id'])
    await post(`webhook-endpoints/${endpoint}/rotate-secret`, {})
    const subject = 'A secret of holder expires'
    expect(await waitFor('holder@example.com', 2)).toEqual([subject, subject])
    const texts = smtp.to('holder@example.com').map(({ text }) => text.replaceAll(/\s+/g, ' '))
    expect(texts.filter((text) => text.includes('A secret of the signer of the app'))).toHaveLength(
      1,
    )
    const hooks = texts.filter((text) => text.includes(`the webhook endpoint ${endpoint} of`))
    expect(hooks).toHaveLength(1)
    expect(hooks[0]).toContain('Deliveries are no longer signed with it then.')
  })

  it('about secrets are bounded by themselves, and a mail over the bound is not tried again', async () => {
    const app = await real.newApp('bounded')
    const email = 'bounded@example.com'
    await real.core.sql.query(
      `insert into mails (id, kind, once, email, status, created_at, expires_at, ended_at)
       select gen_random_uuid(), 'secret_expiring', 'seed:' || n, $1, 'sent', $2, $2, $2
       from generate_series(1, 20) n`,
      [email, real.core.clock.now()],
    )
    await fetch(`${real.url}/api/v1/apps/${app.clientId}/credentials?target=m2m`, {
      method: 'POST',
      headers: app.session,
    })
    const limited = async () =>
      (
        await real.core.sql.query<{ error: string }>(
          "select last_error as error from mails where email = $1 and status = 'failed'",
          [email],
        )
      ).rows
    const found = await eventually(limited, (rows) => rows.length > 0)
    expect(found).toEqual([{ error: 'the address has had too many mails' }])
    // Three more passes of the upkeep, which runs every half second here.
    await real.core.sql.query('select pg_sleep(1.5)')
    expect(await real.core.metrics.getSingleMetricAsString('tollgate_mails_total')).toMatch(
      /outcome="limited".*\} 1$/m,
    )
    expect(subjectsTo(email)).toEqual([])
  })

  it('leave out members who are not owners', async () => {
    const app = await real.newApp('shared')
    const { email, accountId } = await real.newPerson()
    await real.core.sql.query(
      `insert into members (app_id, account_id, role, created_at)
       select app_id, $2, 'admin', now() from clients where client_id = $1`,
      [app.clientId, accountId],
    )
    await fetch(`${real.url}/api/v1/apps/${app.clientId}/credentials?target=m2m`, {
      method: 'POST',
      headers: app.session,
    })
    expect(await waitFor('shared@example.com', 1)).toHaveLength(1)
    const { rows } = await real.core.sql.query(
      "select from mails where kind = 'secret_expiring' and email = $1",
      [email],
    )
    expect(rows).toEqual([])
  })
})
