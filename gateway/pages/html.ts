/** Text that is HTML already. Made only by `html`, which escapes every hole that is not. */
export interface Html {
  readonly html: string
}

type Hole = string | number | Html | readonly Html[] | null | undefined | false

export function html(parts: TemplateStringsArray, ...holes: Hole[]): Html {
  let text = parts[0] ?? ''
  for (let i = 1; i < parts.length; i++) text += render(holes[i - 1]) + (parts[i] ?? '')
  return { html: text }
}

function render(hole: Hole): string {
  if (hole === null || hole === undefined || hole === false) return ''
  if (typeof hole === 'string' || typeof hole === 'number') return escapeText(String(hole))
  return 'html' in hole ? hole.html : hole.map(({ html }) => html).join('')
}

const escapes: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
}

const escapeText = (text: string): string =>
  text.replace(/[&<>"']/g, (character) => escapes[character] ?? '')
