import type { EnvReader } from '../lib/env.ts'
import { isLoopbackHost } from '../lib/outbound/addresses.ts'
import { type Live, currentValue } from '../lib/settings/reloadable.ts'
import { normalizeEmail } from '../lib/text/email.ts'
import { isReadable } from '../lib/text/readable.ts'

/** The server that takes our mails. */
export interface SmtpServer {
  readonly host: string
  readonly port: number
  /** Whether the connection begins with TLS (smtps). */
  readonly isTls: boolean
  /** Whether the connection must change to TLS before anything is sent. */
  readonly requireTls: boolean
  /** Null for a server that asks for none. */
  readonly login: { readonly user: string; readonly pass: string } | null
}

export interface Sender {
  readonly name: string
  readonly address: string
}

export interface MailConfig {
  /** Null without `SMTP_URL`. */
  readonly server: Live<SmtpServer | null>
  readonly from: Live<Sender>
  /** Whether mails are kept for a page when there is no server. */
  readonly hasPage: boolean
  /** Mails to sign up, and mails to set a password, that the deployment sends in an hour. */
  readonly linksPerHour: number
}

const submissionPort = 587
const tlsPort = 465

/** Declares and reads the settings of mails. */
export function readMailConfig(env: EnvReader): MailConfig {
  const server = env.live(() => readServer(env), Boolean)
  const linksPerHour = env.integer('MAIL_LINKS_PER_HOUR', {
    min: 1,
    max: 1_000_000,
    fallback: '500',
    meaning:
      'Mails to sign up that the whole deployment sends in an hour, and as many mails to set a password. Further ones are not sent.',
  })
  return { server, from: env.live(() => readSender(env)), hasPage: env.isEmbedded, linksPerHour }
}

function readServer(env: EnvReader): SmtpServer | null {
  const text = env.url('SMTP_URL', {
    schemes: ['smtp', 'smtps'],
    secret: true,
    meaning:
      'Server that takes mails: smtp://USER:PASSWORD@HOST:587 (STARTTLS, required if there is a user, except at a loopback address), or smtps://USER:PASSWORD@HOST:465. Special characters are percent-encoded. Without it, no mail is sent.',
  })
  if (text === undefined) return null
  const server = parseServer(new URL(text))
  if (server === null)
    env.problem(
      'SMTP_URL must be smtp://USER:PASSWORD@HOST:PORT or smtps://USER:PASSWORD@HOST:PORT, without a path or parameters, with user and password percent-encoded',
    )
  return server
}

function parseServer(url: URL): SmtpServer | null {
  const login = decodeLogin(url.username, url.password)
  const host = url.hostname.replace(/^\[(.*)\]$/, '$1')
  const rest = url.pathname + url.search + url.hash
  if (host === '' || login === undefined || !['', '/'].includes(rest)) return null
  const isTls = url.protocol === 'smtps:'
  return {
    host,
    port: url.port === '' ? (isTls ? tlsPort : submissionPort) : Number(url.port),
    isTls,
    requireTls: !isTls && login !== null && !isLoopbackHost(host),
    login,
  }
}

/** Returns null for a URL without a user, undefined for a wrong one. */
function decodeLogin(username: string, password: string) {
  if (username === '' && password === '') return null
  if (username === '' || password === '') return undefined
  try {
    return { user: decodeURIComponent(username), pass: decodeURIComponent(password) }
  } catch {
    return undefined
  }
}

const noSender: Sender = { name: 'tollgate', address: 'tollgate@localhost' }

function readSender(env: EnvReader): Sender {
  const text = env.optional('MAIL_FROM', {
    meaning:
      'Sender of mails: an address, or NAME <ADDRESS>. The server must accept it. Required with SMTP_URL.',
  })
  if (text === undefined) {
    if (env.isSet('SMTP_URL')) env.problem('MAIL_FROM must be set together with SMTP_URL')
    return noSender
  }
  const [, name = '', bracketed, alone = ''] = /^(?:([^<>]*)<([^<>]+)>|([^<>]+))$/.exec(text) ?? []
  const address = normalizeEmail(bracketed ?? alone)
  if (address !== null && isReadable(name)) return { name: name.trim() || 'tollgate', address }
  env.problem('MAIL_FROM must be an address, or NAME <ADDRESS>')
  return noSender
}

export type MailDelivery = 'smtp' | 'page' | 'none'

/** How mails reach people with these settings. */
export const chooseDelivery = ({ server, hasPage }: MailConfig): MailDelivery => {
  if (currentValue(server) !== null) return 'smtp'
  return hasPage ? 'page' : 'none'
}
