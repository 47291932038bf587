/**
 * The rule for text that people, tenants or strangers choose and others read: names, labels, URIs,
 * ids. Such text has no control characters, line or paragraph separators, lone surrogates, or
 * bidirectional controls (UAX #9), which change the displayed order of text.
 */
const unreadable = /[\p{Cc}\p{Cs}\p{Zl}\p{Zp}\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/u
const unreadableRuns = new RegExp(`${unreadable.source}+`, 'gu')
const kinds = [
  { kind: 'a NUL character', syntax: /\0/ },
  { kind: 'a line break', syntax: /[\n\r\u0085\u2028\u2029]/ },
  { kind: 'a control character', syntax: /\p{Cc}/u },
  { kind: 'half of a surrogate pair', syntax: /\p{Cs}/u },
] as const

/** Whether the text has no characters that make it unreadable or misleading. */
export const isReadable = (text: string): boolean => !unreadable.test(text)

/**
 * Replaces each run of characters that `isReadable` rejects with a blank. Use it for text that is
 * not worth a rejection.
 */
export const toReadable = (text: string): string => text.replace(unreadableRuns, ' ')

/** The characters that `isReadable` rejects, as the end of a sentence. */
export const unreadableKinds = 'no control or bidirectional formatting character'

/**
 * The first character that `isReadable` rejects, by kind and code point, such as "a control
 * character (U+0007)"; null for readable text.
 */
export function unreadableCharacter(text: string): string | null {
  const character = unreadable.exec(text)?.[0]
  if (character === undefined) return null
  const kind = kinds.find(({ syntax }) => syntax.test(character))?.kind
  const code = (character.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, '0')
  return `${kind ?? 'a bidirectional formatting character'} (U+${code})`
}
