import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { type Managing, type Person, logIn, logInTo, manage } from '../../support/web/people.ts'
import { type TestApp, type TestCore, outcome, refusal, startTestCore } from '../support.ts'

let test: TestCore
let app: TestApp
let ada: Person
let owner: Managing
const day = 86_400_000

beforeAll(async () => {
  test = await startTestCore({ QUOTA_APPS_PER_OWNER: '2' })
})
afterAll(() => test.stop())
beforeEach(async () => {
  app = await test.newApp({ loginPolicy: 'members' })
  ada = await logInTo(test, app, 'owner')
  owner = manage(test, { session: ada.token })
})

const named = () => ({ clientId: app.clientId })
const as = ({ token }: Person) => manage(test, { session: token })
async function invite(email: string, role = 'viewer', by = owner): Promise<string> {
  const { member, invitation } = await by.upsertMember({ ...named(), email, role })
  expect(member).toBeUndefined()
  return invitation?.id ?? ''
}
const membersOf = async () =>
  (await owner.listMembers(named())).members.map(({ email, role }) => `${role} ${email}`)
const pending = async () =>
  (await owner.listMembers(named())).invitations.map(({ email, role }) => `${role} ${email}`)

describe('an invitation', () => {
  it('makes a member only of the person who accepts it', async () => {
    const [bob, eve] = [await logIn(test), await logIn(test)]
    const invitationId = await invite(bob.email.toUpperCase())
    expect([await membersOf(), await pending()]).toEqual([
      [`owner ${ada.email}`],
      [`viewer ${bob.email}`],
    ])
    expect(await outcome(as(bob).getApp(named()))).toBe('NOT_FOUND')
    expect((await as(bob).listInvitations()).invitations).toMatchObject([
      { id: invitationId, clientId: app.clientId, role: 'viewer', invitedBy: ada.email },
    ])
    expect((await as(eve).listInvitations()).invitations).toEqual([])
    expect(await outcome(as(eve).acceptInvitation({ invitationId }))).toBe('NOT_FOUND')
    expect(await outcome(as(eve).declineInvitation({ invitationId }))).toBe('NOT_FOUND')
    expect(await outcome(as(bob).acceptInvitation({ invitationId }))).toBe('OK')
    expect(await outcome(as(bob).acceptInvitation({ invitationId }))).toBe('NOT_FOUND')
    expect(await outcome(as(bob).getApp(named()))).toBe('OK')
    expect([(await membersOf()).toSorted(), await pending()]).toEqual([
      [`owner ${ada.email}`, `viewer ${bob.email}`],
      [],
    ])
    const { entries } = await owner.listAudit(named())
    expect(entries.map(({ action, actor }) => `${action} ${actor}`)).toEqual(
      expect.arrayContaining([`member_invited ${ada.accountId}`, `member_added ${bob.accountId}`]),
    )
  })

  it('does not reveal whether the address has an account', async () => {
    const bob = await logIn(test)
    const answers = []
    for (const email of [bob.email, `${randomUUID()}@example.com`]) {
      const { member, created, invitation } = await owner.upsertMember({
        ...named(),
        email,
        role: 'viewer',
      })
      answers.push({ member, created, invitation: { ...invitation, id: '', email: '' } })
    }
    expect(answers[0]).toEqual(answers[1])
  })

  it('can be declined, withdrawn and replaced', async () => {
    const bob = await logIn(test)
    const first = await invite(bob.email)
    const second = await invite(bob.email, 'admin')
    expect(await pending()).toEqual([`admin ${bob.email}`])
    expect(await outcome(as(bob).acceptInvitation({ invitationId: first }))).toBe('NOT_FOUND')
    expect(await outcome(as(bob).declineInvitation({ invitationId: second }))).toBe('OK')
    expect(await pending()).toEqual([])
    const third = await invite(bob.email)
    await owner.withdrawInvitation({ ...named(), invitationId: third })
    for (const invitationId of [third, 'x', randomUUID()]) {
      expect(await outcome(owner.withdrawInvitation({ ...named(), invitationId }))).toBe(
        'NOT_FOUND',
      )
      expect(await outcome(as(bob).acceptInvitation({ invitationId }))).toBe('NOT_FOUND')
    }
    const { entries } = await owner.listAudit(named())
    expect(entries.map(({ action }) => action)).toEqual(
      expect.arrayContaining(['member_invitation_declined', 'member_invitation_withdrawn']),
    )
  })

  it('cannot be withdrawn by another app', async () => {
    const invitationId = await invite(`${randomUUID()}@example.com`)
    const other = await test.newApp()
    const stranger = as(await logInTo(test, other, 'owner'))
    const attempt = stranger.withdrawInvitation({ clientId: other.clientId, invitationId })
    expect(await outcome(attempt)).toBe('NOT_FOUND')
  })

  it('ends after two weeks', async () => {
    const bob = await logIn(test)
    const invitationId = await invite(bob.email)
    test.clock.advance(13 * day)
    expect((await as(bob).listInvitations()).invitations).toHaveLength(1)
    expect(await pending()).toHaveLength(1)
    test.clock.advance(day)
    expect(await pending()).toEqual([])
    expect((await as(bob).listInvitations()).invitations).toEqual([])
    expect(await outcome(as(bob).acceptInvitation({ invitationId }))).toBe('NOT_FOUND')
  })

  it('ends when its inviter loses the right to invite', async () => {
    const [bob, admin] = [await logIn(test), await logInTo(test, app, 'admin')]
    const invitationId = await invite(bob.email, 'viewer', as(admin))
    await owner.deleteMember({ ...named(), accountId: admin.accountId })
    expect(await pending()).toEqual([])
    expect(await outcome(as(bob).acceptInvitation({ invitationId }))).toBe('NOT_FOUND')
  })

  it('is either accepted or withdrawn under concurrent calls', async () => {
    const bob = await logIn(test)
    const invitationId = await invite(bob.email)
    const outcomes = await Promise.all([
      outcome(as(bob).acceptInvitation({ invitationId })),
      outcome(owner.withdrawInvitation({ ...named(), invitationId })),
    ])
    expect(outcomes.toSorted()).toEqual(['NOT_FOUND', 'OK'])
    expect((await membersOf()).length).toBe(outcomes[0] === 'OK' ? 2 : 1)
  })

  it('requires a session', async () => {
    const invitationId = randomUUID()
    for (const session of ['', 'x'.repeat(43)]) {
      const nobody = manage(test, { session })
      expect(await outcome(nobody.listInvitations())).toBe('TOKEN_INVALID')
      expect(await outcome(nobody.acceptInvitation({ invitationId }))).toBe('TOKEN_INVALID')
      expect(await outcome(nobody.declineInvitation({ invitationId }))).toBe('TOKEN_INVALID')
    }
  })

  it('is limited to a hundred per app', async () => {
    for (let i = 0; i < 100; i++) await invite(`${i}@example.com`)
    const more = owner.upsertMember({ ...named(), email: 'more@example.com', role: 'viewer' })
    expect(await outcome(more)).toBe('CONFLICT')
    await invite('7@example.com', 'admin')
  })
})

describe('an invitation to become an owner', () => {
  it('must be accepted by a member, too, and only an owner may invite or withdraw', async () => {
    const bob = await logInTo(test, app, 'admin')
    const invitationId = await invite(bob.email, 'owner')
    expect(await membersOf()).toContain(`admin ${bob.email}`)
    const attempts = [
      () => as(bob).withdrawInvitation({ ...named(), invitationId }),
      () => as(bob).upsertMember({ ...named(), email: 'a@example.com', role: 'owner' }),
    ]
    for (const attempt of attempts) expect(await outcome(attempt())).toBe('EDIT_FORBIDDEN')
    expect(await outcome(as(bob).acceptInvitation({ invitationId }))).toBe('OK')
    expect(await membersOf()).toContain(`owner ${bob.email}`)
    // An owner needs no invitation, and a smaller role needs no consent.
    const { member } = await owner.upsertMember({ ...named(), email: bob.email, role: 'owner' })
    expect(member?.role).toBe('owner')
    await owner.upsertMember({ ...named(), email: bob.email, role: 'viewer' })
    expect(await membersOf()).toContain(`viewer ${bob.email}`)
  })

  it('counts against the app quota and can be accepted later', async () => {
    const bob = await logIn(test)
    const invitationId = await invite(bob.email, 'owner')
    await as(bob).createApp({ name: 'One' })
    await as(bob).createApp({ name: 'Two' })
    expect(await refusal(as(bob).acceptInvitation({ invitationId }))).toMatchObject({
      message: expect.stringContaining('quota apps per owner'),
    })
    expect(await pending()).toEqual([`owner ${bob.email}`])
    const { apps } = await as(bob).listApps()
    await as(bob).deleteApp({ clientId: apps[0]?.clientId ?? '' })
    expect(await outcome(as(bob).acceptInvitation({ invitationId }))).toBe('OK')
  })

  it("ends when the member's role changes or the member is removed", async () => {
    const bob = await logInTo(test, app, 'viewer')
    await invite(bob.email, 'owner')
    await owner.upsertMember({ ...named(), email: bob.email, role: 'admin' })
    expect(await pending()).toEqual([])
    await invite(bob.email, 'owner')
    await owner.deleteMember({ ...named(), accountId: bob.accountId })
    expect(await pending()).toEqual([])
  })
})
