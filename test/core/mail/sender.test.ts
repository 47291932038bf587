import { credentials } from '@grpc/grpc-js'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { unary } from '../../../core/lib/grpc.ts'
import * as accounts from '../../../proto/gen/ts-proto/tollgate/identity/v1/accounts.ts'
import { serviceTokenHeader } from '../../../proto/headers.ts'
import { type SmtpDouble, startSmtpServer } from '../../fakes/smtp.ts'
import { eventually } from '../../support/waiting.ts'
import { registerSecret } from '../../support/run/secrecy.ts'
import { type TestCore, day, serviceToken, startTestCore } from '../support.ts'

const password = registerSecret('a long enough password')
const minute = 60_000

let smtp: SmtpDouble
let core: TestCore
let client: accounts.AccountServiceClient

const settings = () => ({
  SMTP_URL: `smtp://127.0.0.1:${smtp.port}`,
  MAIL_FROM: 'mail@svc.example',
})

beforeAll(async () => {
  smtp = await startSmtpServer()
  core = await startTestCore(settings())
  await core.startAnother(settings())
  client = new accounts.AccountServiceClient(core.core.target, credentials.createInsecure())
})
beforeEach(() => {
  smtp.fail({})
  smtp.open(true)
})
afterAll(async () => {
  client.close()
  await core.stop()
  smtp.stop()
})

const options = { deadlineMs: 20_000, headers: { [serviceTokenHeader]: serviceToken } }

/** Logs in to a new account from a new browser, which causes a mail to the address. */
async function cause(name: string): Promise<string> {
  const email = `${name}@example.com`
  const request = accounts.CreateAccountRequest.fromPartial({ email, password })
  await unary(client.createAccount.bind(client))(request, options)
  const logIn = accounts.LogInRequest.fromPartial({ email, password, isKnownDevice: false })
  const { sessionToken } = await unary(client.logIn.bind(client))(logIn, options)
  registerSecret(sessionToken)
  return email
}

interface Row {
  readonly status: string
  readonly attempts: number
  readonly error: string | null
  readonly isSealed: boolean
}

async function rowOf(email: string): Promise<Row | undefined> {
  const { rows } = await core.sql.query<Row>(
    `select status, attempts, last_error as error, sealed_letter is not null as "isSealed"
     from mails where email = $1`,
    [email],
  )
  return rows[0]
}

const rowWhen = (email: string, isExpected: (row: Row) => boolean) =>
  eventually(
    () => rowOf(email),
    (row) => row !== undefined && isExpected(row),
  )

describe('sender', () => {
  it('sends each mail once, with two cores', async () => {
    const emails = await Promise.all(Array.from({ length: 6 }, (_, i) => cause(`user-${i}`)))
    for (const email of emails) {
      expect(await rowWhen(email, ({ status }) => status === 'sent')).toEqual({
        status: 'sent',
        attempts: 1,
        error: null,
        isSealed: false,
      })
      expect(smtp.to(email)).toHaveLength(1)
    }
  })

  it('waits while the server is unavailable, then sends', async () => {
    smtp.open(false)
    const email = await cause('patient')
    expect(await rowWhen(email, ({ error }) => error !== null)).toMatchObject({
      status: 'waiting',
      isSealed: true,
    })
    smtp.open(true)
    expect((await rowWhen(email, ({ status }) => status === 'sent'))?.status).toBe('sent')
  })

  it('waits while the server refuses its sender', async () => {
    smtp.fail({ MAIL: '550 not you' })
    const email = await cause('sender')
    const row = await rowWhen(email, ({ error }) => error !== null)
    expect(row).toMatchObject({ status: 'waiting', error: expect.stringContaining('550 not you') })
    smtp.fail({})
    expect((await rowWhen(email, ({ status }) => status === 'sent'))?.status).toBe('sent')
  })

  it('gives up a mail that the server refuses for good', async () => {
    smtp.fail({ RCPT: '550 no such mailbox' })
    const email = await cause('gone')
    expect(await rowWhen(email, ({ status }) => status === 'failed')).toEqual({
      status: 'failed',
      attempts: 0,
      error: expect.stringContaining('550 no such mailbox'),
      isSealed: false,
    })
  })

  it('repeats a postponed mail with pauses, and lets others pass', async () => {
    smtp.fail({ RCPT: '451 come back later' })
    const email = await cause('greylisted')
    expect(await rowWhen(email, ({ attempts }) => attempts === 1)).toMatchObject({
      status: 'waiting',
      error: expect.stringContaining('451 come back later'),
    })
    smtp.fail({})
    const other = await cause('other')
    await rowWhen(other, ({ status }) => status === 'sent')
    expect((await rowOf(email))?.status).toBe('waiting')
    core.clock.advance(2 * minute)
    expect((await rowWhen(email, ({ status }) => status === 'sent'))?.attempts).toBe(2)
  })

  it('gives up a mail whose text cannot be read, and sends others', async () => {
    smtp.open(false)
    const email = await cause('unreadable')
    await rowWhen(email, ({ error }) => error !== null)
    await core.sql.query("update mails set sealed_letter = 'x' where email = $1", [email])
    smtp.open(true)
    expect(await rowWhen(email, ({ status }) => status === 'failed')).toMatchObject({
      error: 'its text cannot be read',
    })
    const other = await cause('readable')
    await rowWhen(other, ({ status }) => status === 'sent')
  })

  it('gives up after a day', async () => {
    smtp.fail({ DATA: '452 disk full' })
    const email = await cause('never')
    await rowWhen(email, ({ attempts }) => attempts === 1)
    core.clock.advance(day)
    expect(await rowWhen(email, ({ status }) => status === 'failed')).toMatchObject({
      status: 'failed',
      error: 'it could not be sent in time',
      isSealed: false,
    })
    expect(await core.metrics.getSingleMetricAsString('tollgate_mails_total')).toMatch(
      /outcome="failed".*\} \d/,
    )
  })
})
