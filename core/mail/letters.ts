import type { MailKind } from './kinds.ts'
import { type Letter, quoteName } from './letter.ts'

/** Who uses a secret: a client of the app, its own signer, or the receiver of a webhook. */
export type SecretHolder = 'client' | 'signer' | 'webhook'

/** The facts of a mail, by kind. */
export interface MailFacts {
  /** `url` has the token that sets the password once; null for an account without a password. */
  readonly password_reset: { readonly url: string | null; readonly minutes: number }
  /** `url` has the token that creates the account once; null for an address that has an account. */
  readonly sign_up: { readonly url: string | null; readonly minutes: number }
  readonly invitation: {
    readonly appName: string
    readonly role: string
    readonly invitedBy: string
    readonly until: Date
  }
  readonly new_device: { readonly at: Date }
  readonly password_changed: { readonly at: Date }
  /** Of the account that pays for its owner's apps. */
  readonly balance_low: { readonly balanceUsdMicros: string }
  readonly balance_gone: object
  readonly access_lost: object
  readonly payment_failed: {
    readonly amountUsd: string | null
    readonly nextAttemptAt: Date | null
  }
  readonly secret_expiring: {
    readonly appName: string
    readonly clientId: string
    readonly expiresAt: Date
    readonly holder: SecretHolder
    readonly endpointId: string | null
  }
  readonly webhook_disabled: {
    readonly appName: string
    readonly endpointId: string
    /** Whether the endpoint answered that it wants no more events. */
    readonly isGone: boolean
  }
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

    sign_up: ({ url, minutes }, site) =>
      url === null ? hasAccount(site) : newAccount(url, minutes),

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

    balance_low: ({ balanceUsdMicros }, site) => ({
      subject: 'Your balance is low',
      paragraphs: [
        `${toDollars(balanceUsdMicros)} USD are left of the balance that pays for your apps.`,
        'When it is used up, calls of your apps that you pay for are refused, unless a card is charged for them.',
      ],
      link: { label: 'Open the dashboard', url: `${site}/app` },
      reason: payerReason,
    }),

    balance_gone: (_, site) => ({
      subject: 'Your balance is used up',
      paragraphs: ['The balance that pays for your apps is used up.'],
      link: { label: 'Open the dashboard', url: `${site}/app` },
      reason: payerReason,
    }),

    access_lost: (_, site) => ({
      subject: 'Calls of your apps are refused',
      paragraphs: [
        'Neither balance nor credit is left to pay for your apps, so calls that you pay for are refused now.',
        'Top up, or put a card on file.',
      ],
      link: { label: 'Open the dashboard', url: `${site}/app` },
      reason: payerReason,
    }),

    payment_failed: ({ amountUsd, nextAttemptAt }, site) => ({
      subject: 'A payment failed',
      paragraphs: [
        `A payment${amountUsd === null ? '' : ` of ${amountUsd} USD`} for your apps failed.`,
        nextAttemptAt === null
          ? 'It is not tried again by itself.'
          : `It is tried again on ${toMinute(nextAttemptAt)}. Check the card on file before.`,
      ],
      link: { label: 'Open the dashboard', url: `${site}/app` },
      reason: payerReason,
    }),

    secret_expiring: ({ appName, expiresAt, ...secret }, site) => ({
      subject: `A secret of ${quoteName(appName)} expires`,
      paragraphs: [
        `A secret of ${nameHolder(secret)} of the app "${quoteName(appName)}" expires on ${toMinute(expiresAt)}. ${secret.holder === 'webhook' ? 'Deliveries are no longer signed with it then.' : 'Programs that use it are refused then.'}`,
        'If they already use a newer secret, there is nothing to do.',
      ],
      link: { label: 'Open the dashboard', url: `${site}/app` },
      reason: ownerReason,
    }),

    webhook_disabled: ({ appName, endpointId, isGone }, site) => ({
      subject: `A webhook of ${quoteName(appName)} was switched off`,
      paragraphs: [
        `The webhook endpoint ${endpointId} of the app "${quoteName(appName)}" gets no more events, because ${
          isGone ? 'it answered 410 (gone)' : 'it failed for days, or too many events waited for it'
        }.`,
        'Once it works, switch it on again and send the failed events again.',
      ],
      link: { label: 'Open the dashboard', url: `${site}/app` },
      reason: ownerReason,
    }),
  }

function nameHolder(secret: Omit<MailFacts['secret_expiring'], 'appName' | 'expiresAt'>): string {
  if (secret.holder === 'signer') return 'the signer'
  if (secret.holder === 'webhook') return `the webhook endpoint ${secret.endpointId}`
  return `the client ${secret.clientId}`
}

/** Whole cents, rounded down. */
function toDollars(micros: string): string {
  const cents = String(BigInt(micros) / 10_000n).padStart(3, '0')
  return `${cents.slice(0, -2)}.${cents.slice(-2)}`
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

const payerReason = 'You get this mail because your account pays for apps.'

const ownerReason = 'You get this mail because you own the app.'

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

const newAccount = (url: string, minutes: number): Letter => ({
  subject: 'Create your account',
  paragraphs: [
    'A new account with this address was requested.',
    `The link works once, for ${minutes} minutes. It leads to a page that takes your name and a password.`,
    'If you did not request it, ignore this mail: no account is created.',
  ],
  link: { label: 'Create the account', url },
  reason: 'You get this mail because this address was entered on our sign-up page.',
})

const hasAccount = (site: string): Letter => ({
  subject: 'You have an account',
  paragraphs: [
    'A new account with this address was requested, but the address has an account already. Log in to it.',
    'Password forgotten? The login page leads to a new one. If you did not request anything, ignore this mail.',
  ],
  link: { label: 'Log in', url: `${site}/login` },
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
