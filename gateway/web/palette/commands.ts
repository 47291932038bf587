import type { useNavigate } from '@tanstack/react-router'

/** The commands of the palette, and the search for them. */

export interface Command {
  /** Stays the same, so that recent commands are found again. */
  readonly id: string
  readonly group: Group
  readonly name: string
  /** Further words that a search finds; shown after the name. */
  readonly about?: string
  readonly run: () => void
}

export const groups = [
  'Recent',
  'Ticket',
  'User',
  'This app',
  'Actions',
  'Apps',
  'Operate',
  'General',
] as const
export type Group = (typeof groups)[number]

type Navigate = ReturnType<typeof useNavigate>

interface Place {
  readonly navigate: Navigate
  readonly clientId: string
  readonly canEdit: boolean
}

const appPages = [
  ['Overview', '/$clientId'],
  ['Usage', '/$clientId/usage'],
  ['Users', '/$clientId/users'],
  ['Invoices', '/$clientId/invoices'],
  ['Money', '/$clientId/money'],
  ['Payments', '/$clientId/money/payments'],
  ['Plans', '/$clientId/plans'],
  ['Receipts', '/$clientId/receipts'],
  ['Webhooks', '/$clientId/webhooks'],
  ['Settings', '/$clientId/settings'],
  ['Team', '/$clientId/team'],
  ['Set-up', '/$clientId/setup'],
] as const

const appActions = [
  ['Create a user', '/$clientId/users'],
  ['Invite a member', '/$clientId/team'],
  ['Create a plan', '/$clientId/plans/new'],
  ['Make a client secret', '/$clientId/settings'],
  ['Add a webhook', '/$clientId/webhooks'],
  ['Send a test call to the signer webhook', '/$clientId/setup'],
] as const

/** Pages and actions of the app that is shown. */
export function listAppCommands({ navigate, clientId, canEdit }: Place): Command[] {
  const params = { clientId }
  const pages = appPages.map(([name, to]): Command => ({
    id: `page ${clientId} ${name}`,
    group: 'This app',
    name,
    run: () => void navigate({ to, params }),
  }))
  if (!canEdit) return pages
  const audit: Command = {
    id: `page ${clientId} Audit log`,
    group: 'This app',
    name: 'Audit log',
    run: () => void navigate({ to: '/$clientId/audit', params }),
  }
  const actions = appActions.map(([name, to]): Command => ({
    id: `action ${clientId} ${name}`,
    group: 'Actions',
    name,
    run: () => void navigate({ to, params }),
  }))
  return [...pages, audit, ...actions]
}

interface NamedApp {
  readonly clientId: string
  readonly name: string
}

export const listApps = (navigate: Navigate, apps: readonly NamedApp[]): Command[] =>
  apps.map(({ clientId, name }) => ({
    id: `app ${clientId}`,
    group: 'Apps',
    name,
    about: clientId,
    run: () => void navigate({ to: '/$clientId', params: { clientId } }),
  }))

const operatePages = [
  ['Quarantine', '/operate/quarantine'],
  ['All apps', '/operate/apps'],
  ['Ingest', '/operate/ingest'],
  ['Catalogue', '/operate/catalogue'],
  ['Test clocks', '/operate/test-clocks'],
  ['Holds', '/operate/holds'],
  ['Losses', '/operate/losses'],
  ['Differences', '/operate/differences'],
  ['Checks', '/operate/checks'],
  ['Signers', '/operate/signers'],
  ['Signing keys', '/operate/signing-keys'],
  ['Configuration', '/operate/configuration'],
] as const

export const listOperate = (navigate: Navigate): Command[] => [
  ...operatePages.map(([name, to]): Command => ({
    id: `operate ${name}`,
    group: 'Operate',
    name,
    run: () => void navigate({ to }),
  })),
  {
    id: 'operate Mails',
    group: 'Operate',
    name: 'Mails',
    about: 'the newest mails and why they failed',
    run: () => location.assign('/mail'),
  },
]

export const toUserCommand = (
  navigate: Navigate,
  user: {
    readonly clientId: string
    readonly externalUserId: string
    readonly email: string | null
  },
): Command => ({
  id: `user ${user.clientId} ${user.externalUserId}`,
  group: 'User',
  name: user.externalUserId,
  about: user.email ?? 'user of this app',
  run: () => {
    const { clientId, externalUserId } = user
    void navigate({
      to: '/$clientId/users/$externalUserId',
      params: { clientId, externalUserId },
    })
  },
})

interface FoundTicket {
  readonly clientId: string
  readonly eventId: string
  readonly externalUserId: string | null
  readonly signedAt: string
}

/** Leads to the ticket among its user's, or to its receipt if no external id is known. */
export const toTicketCommand = (
  navigate: Navigate,
  { clientId, eventId, externalUserId, signedAt }: FoundTicket,
): Command => ({
  id: `ticket ${clientId} ${eventId}`,
  group: 'Ticket',
  name: eventId,
  about: `ticket of ${externalUserId ?? 'a user without an external id'}, ${signedAt.slice(0, 10)} (UTC)`,
  run: () => {
    if (externalUserId === null)
      void navigate({
        to: '/$clientId/receipts',
        params: { clientId },
        search: { ticket: eventId },
      })
    else
      void navigate({
        to: '/$clientId/users/$externalUserId',
        params: { clientId, externalUserId },
        search: { part: 'usage', month: signedAt.slice(0, 7), ticket: eventId },
      })
  },
})

interface ScoredCommand {
  readonly command: Command
  readonly score: number
}

/**
 * Returns the commands that contain each word of the search, the best first; without a search, all
 * commands, the recent ones first.
 */
export function findCommands(
  commands: readonly Command[],
  search: string,
  recent: readonly string[],
): Command[] {
  const words = search.trim().toLowerCase().split(/\s+/)
  const known = recent.flatMap((id) => commands.filter((command) => command.id === id))
  if (words.join('') === '')
    return [
      ...known.map((command) => ({ ...command, group: 'Recent' as const })),
      ...commands.filter((command) => !known.includes(command)),
    ]
  const scored = commands
    .map((command) => ({ command, score: scoreOf(command, words) }))
    .filter(({ score }) => score > 0)
  const best = (group: Group): number =>
    Math.max(...scored.filter(({ command }) => command.group === group).map(({ score }) => score))
  // The commands of a group stay together.
  const compare = (one: ScoredCommand, other: ScoredCommand): number =>
    best(other.command.group) - best(one.command.group) ||
    groups.indexOf(one.command.group) - groups.indexOf(other.command.group) ||
    other.score - one.score
  return scored.toSorted(compare).map(({ command }) => command)
}

/** 3: the name begins with the search; 2: one of its words does; 1: it contains each word; 0: no. */
function scoreOf({ name, about = '' }: Command, words: readonly string[]): number {
  const text = `${name} ${about}`.toLowerCase()
  if (!words.every((word) => text.includes(word))) return 0
  const [first = ''] = words
  if (text.startsWith(words.join(' '))) return 3
  return text.split(/[\s-]+/).some((word) => word.startsWith(first)) ? 2 : 1
}
