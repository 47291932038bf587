import type { MailKind } from './kinds.ts'
import { type Letter, quoteName } from './letter.ts'

/** The facts of a mail, by kind. */
export interface MailFacts {
  /** `url` has the token that sets the password once; null for an account without a password. */
  readonly password_reset: { readonly url: string | null; readonly minutes: number }
  readonly invitation: {
    readonly appName: string
    readonly role: string
    readonly invitedBy: string
    readonly until: Date
  }
  readonly new_device: { readonly at: Date }
  readonly password_changed: { readonly at: Date }
}

/** A kind of mail with its facts. */
export type MailContent = {
  readonly [Kind in MailKind]: { readonly kind: Kind } & MailFacts[Kind]
}[MailKind]

/** One template for each kind. `site` is the origin of our pages. */
const templates: { readonly [Kind in MailKind]: (facts: MailFacts[Kind], site: string) => Letter } =
  {
    password_reset: ({ url, minutes }, site) =>
      url === null ? noPassword(site) : newPassword(url, minutes),

    invitation: ({ appName, role, invitedBy, until }, site) => ({
      subject: `Invitation to ${quoteName(appName)}`,
      paragraphs: [
        `${invitedBy} invites you to the app "${quoteName(appName)}" as ${role}.`,
        `Log in with this address to accept or decline, until ${toMinute(until)}. If you do not answer, nothing happens.`,
      ],
      link: { label: 'Answer the invitation', url: `${site}/invitations` },
      reason: 'You get this mail because a member of the app entered your address.',
    }),

    new_device: ({ at }, site) => ({
      subject: 'Login from a new browser',
      paragraphs: [
        `On ${toMinute(at)}, your account was logged in to from a browser that was new for it.`,
        'If it was you, there is nothing to do. If not, set a new password now: that ends all logins of the account.',
      ],
      link: { label: 'Set a new password', url: `${site}/forgot-password` },
      reason: accountReason,
    }),

    password_changed: ({ at }, site) => ({
      subject: 'Your password was changed',
      paragraphs: [
        `The password of your account was changed on ${toMinute(at)}. All logins of the account have ended.`,
        'If it was not you, set a new password now.',
      ],
      link: { label: 'Set a new password', url: `${site}/forgot-password` },
      reason: accountReason,
    }),
  }

/** Returns the letter of a mail. */
export function composeLetter<Kind extends MailKind>(
  { kind, ...facts }: { readonly kind: Kind } & MailFacts[Kind],
  site: string,
): Letter {
  const template: (facts: never, site: string) => Letter = templates[kind]
  return template(facts as never, site)
}

const accountReason = 'You get this mail because you have an account with this address.'

const toMinute = (at: Date): string => `${at.toISOString().slice(0, 16).replace('T', ' ')} UTC`

const newPassword = (url: string, minutes: number): Letter => ({
  subject: 'Set a new password',
  paragraphs: [
    'A new password for your account was requested.',
    `The link works once, for ${minutes} minutes. A new password ends all logins of the account.`,
    'If you did not request it, ignore this mail: your password stays as it is.',
  ],
  link: { label: 'Set a new password', url },
  reason: accountReason,
})

const noPassword = (site: string): Letter => ({
  subject: 'Your account has no password',
  paragraphs: [
    'A new password for your account was requested, but your account logs in through an outside provider and has no password.',
    'If you did not request it, ignore this mail.',
  ],
  link: { label: 'Log in', url: `${site}/login` },
  reason: accountReason,
})
