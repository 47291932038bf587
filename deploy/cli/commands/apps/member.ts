import { normalizeEmail } from '../../../../core/lib/text/email.ts'
import type { CoreClient } from '../../client.ts'
import { action, createCommand } from '../../command.ts'
import { type Option, UsageError, app, required } from '../../options.ts'
import { table } from '../../output.ts'

const list = action({
  text: 'Lists the members of an app, and the invitations that wait for an answer.',
  options: { clientId: app },
  read: (core, request) => core.management.listMembers(request),
  lines: ({ members, invitations }) =>
    table(
      [
        ...members.map((member) => ({ ...member, state: 'member' })),
        ...invitations.map((invitation) => ({
          ...invitation,
          state: `invited, until ${invitation.expiresAt.slice(0, 10)}`,
        })),
      ],
      ['email', 'role', ['since', ({ createdAt }) => createdAt.slice(0, 10)], 'state'],
      'no members',
    ),
})

const put = action({
  text:
    'Changes the role of a member. A person who is not a member, or a member who shall become an owner, gets ' +
    'an invitation instead, to accept or decline at /invitations of the service within 14 days. It names the ' +
    "app's first owner as sender or, if the app has no owner, the first platform admin.",
  options: { clientId: app, email: required('EMAIL'), role: required('owner|admin|viewer') },
  change: (core, request) => core.management.upsertMember(request),
  lines: ({ invitation, member }, { email }) => [
    invitation === undefined
      ? `${member?.email ?? email} is ${member?.role} now`
      : `${invitation.email} is invited as ${invitation.role} in the name of ` +
        `${invitation.invitedBy}, and may accept at /invitations until ${invitation.expiresAt}`,
  ],
})

const address: Option<string> = {
  ...required('EMAIL'),
  convert: ([word = ''], name) => {
    const email = normalizeEmail(word)
    if (email === null) throw new UsageError(`${name} must be an e-mail address`)
    return email
  },
}

const remove = action({
  text:
    "Removes a member or withdraws an invitation. If only members may log in, the member's logins to the app " +
    'end, too. The last owner cannot be removed.',
  options: { clientId: app, email: address },
  change: async (core, { clientId, email }) => ({
    email,
    removed: await removeByEmail(core, clientId, email),
  }),
  lines: ({ email, removed }) => [
    removed === 'member'
      ? `${email} is no longer a member`
      : `the invitation of ${email} is withdrawn`,
  ],
})

/** Removes the member with that address or, without one, the invitation. */
async function removeByEmail(
  core: CoreClient,
  clientId: string,
  address: string,
): Promise<'member' | 'invitation'> {
  const { members, invitations } = await core.management.listMembers({ clientId })
  const member = members.find(({ email }) => email === address)
  if (member) {
    await core.management.deleteMember({ clientId, accountId: member.accountId })
    return 'member'
  }
  const invitation = invitations.find(({ email }) => email === address)
  if (!invitation)
    throw new Error(`the app has neither a member nor an invitation with --email ${address}`)
  await core.management.withdrawInvitation({ clientId, invitationId: invitation.id })
  return 'invitation'
}

export const member = createCommand('member', {
  summary: 'lists, invites, changes and removes the people of an app',
  examples: [
    './tollgate member put --app app_0123456789abcdef01234567 --email ada@example.com --role admin',
    './tollgate member list --app app_0123456789abcdef01234567 --json',
    './tollgate member remove --app app_0123456789abcdef01234567 --email ada@example.com',
  ],
  actions: { list, put, remove },
})
