import { credentials } from '@grpc/grpc-js'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { unary } from '../../../core/lib/grpc.ts'
import * as accounts from '../../../proto/gen/ts-proto/tollgate/identity/v1/accounts.ts'
import { serviceTokenHeader } from '../../../proto/headers.ts'
import { type SmtpDouble, startSmtpServer } from '../../fakes/smtp.ts'
import { registerSecret } from '../../support/run/secrecy.ts'
import { eventually } from '../../support/waiting.ts'
import { type TestCore, serviceToken, startTestCore } from '../support.ts'

const password = registerSecret('a long enough password')
const hour = 3_600_000

let smtp: SmtpDouble
let core: TestCore
let client: accounts.AccountServiceClient
beforeAll(async () => {
  smtp = await startSmtpServer()
  core = await startTestCore({
    SMTP_URL: `smtp://127.0.0.1:${smtp.port}`,
    MAIL_FROM: 'mail@svc.example',
    SIGN_UP: 'address',
    MAIL_LINKS_PER_HOUR: '3',
  })
  client = new accounts.AccountServiceClient(core.core.target, credentials.createInsecure())
})
afterAll(async () => {
  client.close()
  await core.stop()
  smtp.stop()
})

const options = { deadlineMs: 20_000, headers: { [serviceTokenHeader]: serviceToken } }
const create = (email: string) =>
  unary(client.createAccount.bind(client))(
    accounts.CreateAccountRequest.fromPartial({ email, password }),
    options,
  )
const signUp = (email: string) => unary(client.requestSignUp.bind(client))({ email }, options)
const forget = (email: string) =>
  unary(client.requestPasswordReset.bind(client))({ email }, options)

const quiet = () =>
  eventually(
    async () => (await core.sql.query('select from outbox')).rows.length,
    (waiting) => waiting === 0,
  )

const reasons = async () =>
  (
    await core.sql.query<{ kind: string; error: string | null; n: number }>(
      `select kind, last_error as error, count(*)::int as n from mails group by 1, 2 order by 1, 2 nulls first`,
    )
  ).rows

describe('MAIL_LINKS_PER_HOUR', () => {
  const capped = 'the deployment has sent too many mails of this kind (MAIL_LINKS_PER_HOUR)'

  it('bounds the sign-ups of all addresses, with the same answer for those with an account', async () => {
    await create('known@example.com')
    for (const name of ['a', 'b', 'c', 'd']) {
      expect(await signUp(`${name}@example.com`)).toEqual({})
      await quiet()
    }
    expect(await signUp('known@example.com')).toEqual({})
    await quiet()
    expect(await reasons()).toEqual([
      { kind: 'sign_up', error: null, n: 3 },
      { kind: 'sign_up', error: capped, n: 2 },
    ])
    expect(smtp.to('d@example.com')).toEqual([])
    expect(smtp.to('known@example.com')).toEqual([])
  })

  it('leaves the mails that set a password, and ends after an hour', async () => {
    await forget('known@example.com')
    await quiet()
    expect(smtp.to('known@example.com')).toHaveLength(1)
    core.clock.advance(hour + 1_000)
    await signUp('d@example.com')
    await quiet()
    expect(smtp.to('d@example.com')).toHaveLength(1)
  })

  it('bounds the mails that set a password', async () => {
    for (const name of ['p', 'q', 'r', 's']) {
      await create(`${name}@example.com`)
      await forget(`${name}@example.com`)
      await quiet()
    }
    expect(smtp.to('r@example.com')).toHaveLength(1)
    expect(smtp.to('s@example.com')).toEqual([])
    expect(await core.metrics.getSingleMetricAsString('tollgate_mails_total')).toMatch(
      /outcome="capped".*\} 3$/m,
    )
  })
})
