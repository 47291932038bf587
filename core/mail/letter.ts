import { isObject, parseJson } from '../lib/json.ts'
import { toReadable } from '../lib/text/readable.ts'

/** The content of a mail, from which its plain and HTML forms are rendered. */
export interface Letter {
  readonly subject: string
  readonly paragraphs: readonly string[]
  readonly link?: LetterLink | undefined
  /** Why the reader gets this mail. */
  readonly reason: string
}

export interface LetterLink {
  readonly label: string
  readonly url: string
}

const nameMax = 100

/**
 * Returns a text that a tenant chose in a form that is safe to quote: one readable line of limited
 * length. Blanks within `://` and after dots keep mail programs from turning it into a link.
 */
export const quoteName = (text: string): string =>
  toReadable(text)
    .trim()
    .replaceAll('://', ': //')
    .replaceAll(/(?<=[\p{L}\p{N}-])[.。．｡](?=\p{L})/gu, '. ')
    .slice(0, nameMax)

/** The subject as a header: one line. */
export const toSubject = ({ subject }: Letter): string => toReadable(subject)

export function renderText({ paragraphs, link, reason }: Letter): string {
  const blocks = [...paragraphs, ...(link ? [`${link.label}:\n${link.url}`] : [])]
  return `${blocks.map(toLines).join('\n\n')}\n\n-- \n${toReadable(reason)}\n`
}

/** Only the line break between label and address is ours. */
const toLines = (text: string): string => text.split('\n').map(toReadable).join('\n')

export function renderHtml({ subject, paragraphs, link, reason }: Letter): string {
  const blocks = paragraphs.map((text) => `<p>${escapeHtml(text)}</p>`)
  const button =
    link &&
    `<p><a href="${escapeHtml(link.url)}" style="${buttonStyle}">${escapeHtml(link.label)}</a></p>`
  const address =
    link && `<p style="${smallStyle}">Or open this address: ${escapeHtml(link.url)}</p>`
  return `<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="color-scheme" content="light dark"><title>${escapeHtml(subject)}</title></head>
<body style="${bodyStyle}">
${[...blocks, button, address].filter(Boolean).join('\n')}
<p style="${smallStyle}">${escapeHtml(reason)}</p>
</body>
</html>
`
}

const bodyStyle =
  'font:16px/1.5 system-ui,sans-serif;max-width:34rem;margin:0 auto;padding:1.5rem 1rem'
const buttonStyle =
  'display:inline-block;padding:.6rem 1.1rem;border-radius:.4rem;background:#2457d6;color:#fff;text-decoration:none'
const smallStyle = 'font-size:13px;opacity:.75;overflow-wrap:anywhere'

const escapes: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
}

const escapeHtml = (text: string): string =>
  toReadable(text).replace(/[&<>"']/g, (character) => escapes[character] ?? '')

/** The letter for a log: its link lacks the parameters, which may hold a secret. */
export const withoutSecrets = ({ link, ...letter }: Letter): Letter => ({
  ...letter,
  link: link && { ...link, url: link.url.replace(/\?.*$/s, '?…') },
})

export const packLetter = (letter: Letter): Buffer => Buffer.from(JSON.stringify(letter))

/** Throws if the text is not a packed letter. */
export function unpackLetter(bytes: Buffer): Letter {
  const value = parseJson(bytes.toString('utf8'))
  if (!isLetter(value)) throw new Error('a stored mail cannot be read')
  return value
}

const isLetter = (value: unknown): value is Letter =>
  isObject(value) &&
  typeof value['subject'] === 'string' &&
  typeof value['reason'] === 'string' &&
  Array.isArray(value['paragraphs'])
