import { normalizeEmail } from '../../../../core/lib/text/email.ts'
import type {
  Invitation,
  Member,
} from '../../../../proto/gen/ts-proto/tollgate/identity/v1/management.ts'
import type { CoreClient } from '../../client.ts'
import {
  type Command,
  UsageError,
  changeCore,
  need,
  parseOptions,
  runAction,
  withCore,
} from '../../command.ts'
import { printJson, printLines, printable, report, table } from '../../output.ts'

const options = {
  app: { type: 'string' },
  email: { type: 'string' },
} as const

export const member: Command = {
  summary: 'lists, invites, changes and removes the people of an app',
  help: {
    usages: [
      {
        syntax: 'tollgate member list [--app APP] [--json]',
        text: 'Lists the members of an app, and the invitations that wait for an answer.',
      },
      {
        syntax: 'tollgate member put [--app APP] --email EMAIL --role owner|admin|viewer [--json]',
        text:
          'Changes the role of a member. A person who is not a member, or a member who shall become an owner, gets ' +
          'an invitation instead, to accept or decline at /invitations of the service within 14 days. It names the ' +
          "app's first owner as sender or, if the app has no owner, the first platform admin.",
      },
      {
        syntax: 'tollgate member remove [--app APP] --email EMAIL [--json]',
        text:
          "Removes a member or withdraws an invitation. If only members may log in, the member's logins to the app " +
          'end, too. The last owner cannot be removed.',
      },
    ],
    examples: [
      './tollgate member put --app app_0123456789abcdef01234567 --email ada@example.com --role admin',
      './tollgate member list --app app_0123456789abcdef01234567 --json',
      './tollgate member remove --app app_0123456789abcdef01234567 --email ada@example.com',
    ],
  },
  run: runAction('member', { list, put, remove }),
}

async function list(argv: readonly string[]): Promise<void> {
  const values = parseOptions(argv, { app: { type: 'string' } })
  const { app: clientId } = await need('member list', values, ['app'])
  const answer = await withCore(values, (core) => core.listAppMembers({ clientId }))
  const rows = [...answer.members.map(rowOfMember), ...answer.invitations.map(rowOfInvitation)]
  report(values, answer, () => table(['email', 'role', 'since', 'state'], rows, 'no members'))
}

async function put(argv: readonly string[]): Promise<void> {
  const values = parseOptions(argv, { ...options, role: { type: 'string' } })
  const { app: clientId, email, role } = await need('member put', values, ['app', 'email', 'role'])
  const answer = await changeCore(values, (core) => core.putAppMember({ clientId, email, role }))
  if (values.json) return printJson(answer)
  const { invitation } = answer
  printLines([
    invitation === undefined
      ? `${printable(answer.member?.email ?? email)} is ${answer.member?.role} now`
      : `${printable(invitation.email)} is invited as ${invitation.role} in the name of ` +
        `${printable(invitation.invitedBy)}, and may accept at /invitations until ${invitation.expiresAt}`,
  ])
}

async function remove(argv: readonly string[]): Promise<void> {
  const values = parseOptions(argv, options)
  const { app: clientId, email } = await need('member remove', values, ['app', 'email'])
  const address = normalizeEmail(email)
  if (address === null) throw new UsageError('--email must be an e-mail address')
  const removed = await changeCore(values, (core) => removeByEmail(core, clientId, address))
  if (values.json) return printJson({ email: address, removed })
  printLines([
    removed === 'member'
      ? `${address} is no longer a member`
      : `the invitation of ${address} is withdrawn`,
  ])
}

/** Removes the member with that address or, without one, the invitation. */
async function removeByEmail(
  core: CoreClient,
  clientId: string,
  address: string,
): Promise<'member' | 'invitation'> {
  const { members, invitations } = await core.listAppMembers({ clientId })
  const member = members.find(({ email }) => email === address)
  if (member) {
    await core.removeAppMember({ clientId, accountId: member.accountId })
    return 'member'
  }
  const invitation = invitations.find(({ email }) => email === address)
  if (!invitation)
    throw new Error(`the app has neither a member nor an invitation with --email ${address}`)
  await core.withdrawAppInvitation({ clientId, invitationId: invitation.id })
  return 'invitation'
}

const rowOfMember = ({ email, role, createdAt }: Member): string[] => [
  email,
  role,
  createdAt.slice(0, 10),
  'member',
]

const rowOfInvitation = ({ email, role, createdAt, expiresAt }: Invitation): string[] => [
  email,
  role,
  createdAt.slice(0, 10),
  `invited, until ${expiresAt.slice(0, 10)}`,
]
