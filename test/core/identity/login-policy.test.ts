import { randomUUID } from 'node:crypto'
import { credentials } from '@grpc/grpc-js'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { unary } from '../../../core/lib/grpc.ts'
import * as authorization from '../../../proto/gen/ts-proto/tollgate/tokens/v1/authorization.ts'
import * as devices from '../../../proto/gen/ts-proto/tollgate/tokens/v1/devices.ts'
import { serviceTokenHeader } from '../../../proto/headers.ts'
import { type Person, logIn, logInTo, manage } from '../../support/web/people.ts'
import { type TestApp, type TestCore, outcome, serviceToken, startTestCore } from '../support.ts'

let test: TestCore
let app: TestApp
let owner: Person
let logins: authorization.AuthorizationServiceClient
let devicesOf: devices.DeviceServiceClient
const redirectUri = 'https://app.example/done'

beforeAll(async () => {
  test = await startTestCore()
  const insecure = credentials.createInsecure()
  logins = new authorization.AuthorizationServiceClient(test.core.target, insecure)
  devicesOf = new devices.DeviceServiceClient(test.core.target, insecure)
  app = await test.newApp({ loginPolicy: 'members' })
  owner = await logInTo(test, app, 'owner')
  await update({ redirectUris: { values: [redirectUri] } })
})
afterAll(async () => {
  logins.close()
  devicesOf.close()
  await test.stop()
})

const options = { deadlineMs: 15_000, headers: { [serviceTokenHeader]: serviceToken } }
const update = (change: object) =>
  manage(test, { session: owner.token }).updateApp({ clientId: app.clientId, ...change })

/** Returns the outcome of an authorization request and of a device login by the person. */
async function attempts({ token }: Person): Promise<string[]> {
  const checked = await unary(logins.checkAuthorization.bind(logins))(
    authorization.CheckAuthorizationRequest.fromPartial({
      clientId: app.clientId,
      redirectUri,
      responseType: 'code',
      codeChallenge: 'x'.repeat(43),
      codeChallengeMethod: 'S256',
      sessionToken: token,
    }),
    options,
  )
  const { userCode } = await unary(devicesOf.startDevice.bind(devicesOf))(
    { clientId: app.clientId, scope: undefined },
    options,
  )
  const decided = await outcome(
    unary(devicesOf.decideDevice.bind(devicesOf))(
      { sessionToken: token, userCode, action: 'approve' },
      options,
    ),
  )
  return [checked.error, decided]
}
const admitted = ['', 'OK']
const refused = ['access_denied', 'ACCESS_DENIED']
const withAddress = async (email: string): Promise<Person> => {
  const person = await logIn(test)
  await test.sql.query('update accounts set email = $1 where id = $2', [email, person.accountId])
  return person
}

describe('the login policy', () => {
  it('admits members and platform admins by default', async () => {
    const view = await manage(test, { session: owner.token }).getApp({ clientId: app.clientId })
    expect(view.app).toMatchObject({ loginPolicy: 'members', loginDomains: [], loginCredit: true })
    expect(await attempts(await logIn(test))).toEqual(refused)
    expect(await attempts(await logInTo(test, app, 'viewer'))).toEqual(admitted)
    expect(await attempts(await logIn(test, { isPlatformAdmin: true }))).toEqual(admitted)
  })

  it('admits people with an address in its domains', async () => {
    await update({ loginPolicy: 'domains', loginDomains: { values: ['Bücher.example', 'b.test'] } })
    expect(await attempts(await withAddress('a@xn--bcher-kva.example'))).toEqual(admitted)
    expect(await attempts(await withAddress('a@sub.b.test'))).toEqual(refused)
    expect(await attempts(owner)).toEqual(admitted)
  })

  it('admits all accounts with the value anyone', async () => {
    await update({ loginPolicy: 'anyone' })
    expect(await attempts(await logIn(test))).toEqual(admitted)
  })

  it.each([{ loginPolicy: 'everybody' }, { loginDomains: { values: ['*'] } }])(
    'cannot be %o',
    async (change) => {
      expect(await outcome(update(change))).toBe('REQUEST_INVALID')
    },
  )
})

describe('a user created by login', () => {
  it('is listed, deactivated and re-activated like others, and never created by the backend', async () => {
    const person = await logIn(test)
    await attempts(person)
    const backend = test.as(app.basic)
    const name = { clientId: app.clientId, externalUserId: `user:${person.accountId}` }
    const find = async () => (await backend.listUsers(name)).users.map(({ status }) => status)
    expect(await find()).toEqual(['active'])
    expect(await outcome(backend.deactivateUser(name))).toBe('OK')
    expect(await find()).toEqual(['inactive'])
    expect(await attempts(person)).toEqual(['', 'ACCESS_DENIED'])
    expect(await outcome(backend.upsertUser({ ...name, status: 'active' }))).toBe('OK')
    expect(await outcome(backend.updateUser({ ...name, email: 'a@b.test' }))).toBe('OK')
    expect(await outcome(backend.mintUserToken(name))).toBe('OK')
    expect(await attempts(person)).toEqual(admitted)
    for (const externalUserId of [`user:${randomUUID()}`, 'owner:me', 'a\u202Eb'])
      expect(await outcome(backend.upsertUser({ ...name, externalUserId }))).toBe('REQUEST_INVALID')
  })

  it("gets Starter's credit unless loginCredit is false", async () => {
    const balanceOf = async () => {
      const person = await logIn(test)
      await attempts(person)
      const { balance } = await test
        .as(app.basic)
        .getBalance({ clientId: app.clientId, externalUserId: `user:${person.accountId}` })
      return balance?.balanceUsdMicros
    }
    expect(await balanceOf()).toBe('5000000')
    await update({ loginCredit: false })
    expect([await balanceOf(), await balanceOf()]).toEqual(['0', '0'])
    await update({ loginCredit: true })
    expect(await balanceOf()).toBe('5000000')
  })
})
