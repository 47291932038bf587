import { type Reloadable, deriveLive } from '../lib/settings/reloadable.ts'
import type { Sender, SmtpServer } from './config.ts'
import { type Letter, renderHtml, renderText, toSubject } from './letter.ts'

/**
 * The result of one attempt.
 * - `sent`: the server has taken the mail.
 * - `refused`: the server refuses this mail permanently.
 * - `postponed`: the server may take this mail later.
 * - `unavailable`: the server takes no mail now.
 */
export type SmtpResult =
  | { readonly kind: 'sent' }
  | { readonly kind: 'refused' | 'postponed' | 'unavailable'; readonly why: string }

export interface SmtpMail {
  readonly id: string
  readonly email: string
  readonly letter: Letter
}

const connectMs = 10_000
/**
 * RFC 5321 section 4.5.3.2 gives servers minutes to answer. Shorter than the outbox's lease, so that
 * no other core sends the mail meanwhile.
 */
const silenceMs = 240_000

/** Sends mails to the server of the settings, each on a connection of its own. */
export function createSmtp({
  server,
  from,
  publicUrl,
  answerMs = silenceMs,
}: {
  readonly server: Reloadable<SmtpServer | null>
  readonly from: () => Sender
  readonly publicUrl: string
  /** For tests. */
  readonly answerMs?: number | undefined
}) {
  const { hostname } = new URL(publicUrl)
  const transport = deriveLive(server, (settings) => settings && openTransport(settings, answerMs))

  async function send({ id, email, letter }: SmtpMail): Promise<SmtpResult> {
    const opening = transport()
    if (opening === null) return { kind: 'unavailable', why: 'SMTP_URL is not set' }
    try {
      const open = await opening
      await open.sendMail({
        from: from(),
        to: { name: '', address: email },
        subject: toSubject(letter),
        text: renderText(letter),
        html: renderHtml(letter),
        // The same in every attempt, so that a mailbox can recognise a repeated mail.
        messageId: `<${id}@${hostname}>`,
        headers: { 'Auto-Submitted': 'auto-generated' },
        disableFileAccess: true,
        disableUrlAccess: true,
      })
      return { kind: 'sent' }
    } catch (error) {
      return toResult(error)
    }
  }

  return { send }
}

export type Smtp = ReturnType<typeof createSmtp>

// Loaded on demand, which saves memory in a deployment without mail.
async function openTransport(
  { host, port, isTls, requireTls, login }: SmtpServer,
  answerMs: number,
) {
  const { createTransport } = await import('nodemailer')
  return createTransport({
    host,
    port,
    secure: isTls,
    requireTLS: requireTls,
    ...(login && { auth: login }),
    connectionTimeout: connectMs,
    greetingTimeout: connectMs,
    dnsTimeout: connectMs,
    socketTimeout: answerMs,
  })
}

/** The message of nodemailer if an answer takes too long. Connections and greetings have others. */
const silence = 'Timeout'

/** Answers to these commands are about one mail; others are about the server or its settings. */
const mailCommands = new Set(['RCPT TO', 'DATA'])

function toResult(error: unknown): SmtpResult {
  const why = error instanceof Error ? error.message : 'failed'
  // The server was there and fell silent, perhaps over this mail, which it may have taken.
  if (why === silence) return { kind: 'postponed', why: 'the server did not answer in time' }
  const code = memberOf(error, 'responseCode')
  const isOfMail = mailCommands.has(String(memberOf(error, 'command')))
  if (!isOfMail || typeof code !== 'number') return { kind: 'unavailable', why }
  return { kind: code >= 500 ? 'refused' : 'postponed', why }
}

const memberOf = (error: unknown, name: string): unknown =>
  typeof error === 'object' && error !== null ? Reflect.get(error, name) : undefined
