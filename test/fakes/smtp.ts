import { type Server, type Socket, createServer } from 'node:net'

/** A mail as the server took it. */
export interface TakenMail {
  readonly from: string
  readonly to: string
  /** Header fields by lower-case name, unfolded and decoded. */
  readonly headers: Readonly<Record<string, string>>
  readonly text: string
  readonly html: string
  readonly raw: string
}

/** Answers to commands instead of 250, by the start of the command. An empty one is silence. */
export type SmtpFaults = Readonly<Partial<Record<'MAIL' | 'RCPT' | 'DATA' | 'AUTH', string>>>

/** A mail server that keeps what it takes. It speaks the part of SMTP (RFC 5321) that clients need. */
export async function startSmtpServer({ login }: { login?: string } = {}) {
  const mails: TakenMail[] = []
  const sockets = new Set<Socket>()
  let faults: SmtpFaults = {}
  let isOpen = true
  let connections = 0

  const server: Server = createServer((socket) => {
    connections++
    sockets.add(socket)
    socket.on('close', () => sockets.delete(socket)).on('error', () => {})
    if (!isOpen) return void socket.destroy()
    serve(socket)
  })

  function serve(socket: Socket): void {
    const answer = (line: string) => socket.write(`${line}\r\n`)
    let received = ''
    let envelope = { from: '', to: '' }
    let isData = false
    let isAdmitted = login === undefined

    function takeCommand(line: string): void {
      const verb = line.slice(0, 4).toUpperCase()
      const fault = (faults as Record<string, string | undefined>)[verb]
      if (verb === 'EHLO') return void answer('250-localhost\r\n250 AUTH PLAIN')
      if (fault !== undefined) return void (fault !== '' && answer(fault))
      if (verb === 'AUTH') {
        isAdmitted = line === `AUTH PLAIN ${Buffer.from(`\0${login ?? ''}`).toString('base64')}`
        return void answer(isAdmitted ? '235 ok' : '535 wrong login')
      }
      if (!isAdmitted) return void answer('530 log in first')
      const address = /<([^>]*)>/.exec(line)?.[1] ?? ''
      if (verb === 'MAIL') envelope = { from: address, to: '' }
      if (verb === 'RCPT') envelope = { ...envelope, to: address }
      if (verb === 'DATA') {
        isData = true
        return void answer('354 go on')
      }
      answer(verb === 'QUIT' ? '221 bye' : '250 ok')
      if (verb === 'QUIT') socket.end()
    }

    socket.setEncoding('utf8').on('data', (chunk: string) => {
      received += chunk
      for (;;) {
        const end = received.indexOf(isData ? '\r\n.\r\n' : '\r\n')
        if (end < 0) return
        const part = received.slice(0, end)
        received = received.slice(end + (isData ? 5 : 2))
        if (!isData) takeCommand(part)
        else {
          isData = false
          mails.push(parseMail(part.replaceAll('\r\n..', '\r\n.'), envelope))
          answer('250 taken')
        }
      }
    })
    answer('220 localhost ESMTP')
  }

  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const address = server.address()
  const port = typeof address === 'object' && address ? address.port : 0

  return {
    port,
    mails,
    connections: () => connections,
    to: (email: string): TakenMail[] => mails.filter((mail) => mail.to === email),
    /** Replaces the server's faults. */
    fail: (next: SmtpFaults) => void (faults = next),
    /** Whether the server answers at all. */
    open: (next: boolean) => void (isOpen = next),
    stop: () => {
      for (const socket of sockets) socket.destroy()
      server.close()
    },
  }
}

export type SmtpDouble = Awaited<ReturnType<typeof startSmtpServer>>

function parseMail(raw: string, envelope: { from: string; to: string }): TakenMail {
  const { headers, body } = split(raw)
  const boundary = /boundary="([^"]+)"/.exec(headers['content-type'] ?? '')?.[1] ?? ''
  const parts = body.split(`--${boundary}`).map(split)
  const partOf = (type: string): string => {
    const part = parts.find((each) => each.headers['content-type']?.startsWith(type))
    return part === undefined ? '' : decode(part)
  }
  return { ...envelope, headers, text: partOf('text/plain'), html: partOf('text/html'), raw }
}

function split(text: string) {
  const trimmed = text.replace(/^\r\n/, '')
  const end = trimmed.indexOf('\r\n\r\n')
  const fields = trimmed
    .slice(0, end)
    .replaceAll(/\r\n[ \t]+/g, ' ')
    .split('\r\n')
    .map((line) => {
      const colon = line.indexOf(':')
      return [line.slice(0, colon).toLowerCase(), decodeWords(line.slice(colon + 2))]
    })
  return {
    headers: Object.fromEntries(fields) as Record<string, string>,
    body: trimmed.slice(end + 4),
  }
}

/** Decodes encoded words of the form Q (RFC 2047). */
const decodeWords = (value: string): string =>
  value.replaceAll(/=\?UTF-8\?Q\?([^?]*)\?=(?: (?==\?))?/gi, (_, text: string) =>
    decodeQuoted(text.replaceAll('_', ' ')),
  )

function decodeQuoted(text: string): string {
  const bytes = text.replaceAll(/=([0-9A-F]{2})/g, (_, hex: string) =>
    String.fromCharCode(parseInt(hex, 16)),
  )
  return Buffer.from(bytes, 'latin1').toString()
}

function decode({ headers, body }: ReturnType<typeof split>): string {
  const encoding = headers['content-transfer-encoding'] ?? '7bit'
  if (encoding === 'base64') return Buffer.from(body, 'base64').toString()
  if (encoding !== 'quoted-printable') return body.replaceAll('\r\n', '\n')
  return decodeQuoted(body.replaceAll('=\r\n', '')).replaceAll('\r\n', '\n')
}
