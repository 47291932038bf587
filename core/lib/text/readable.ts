/**
 * The one rule for text that people, tenants or strangers choose and that others read: names, labels, URIs, ids. It has no
 * control characters, no line or paragraph separators, no lone surrogates, and none of the bidirectional controls
 * (UAX #9), which make text read differently from what it is.
 */
const unreadable = /[\p{Cc}\p{Cs}\p{Zl}\p{Zp}\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/u
const unreadableRuns = new RegExp(`${unreadable.source}+`, 'gu')
const kinds = [
  { kind: 'a NUL character', syntax: /\0/ },
  { kind: 'a line break', syntax: /[\n\r\u0085\u2028\u2029]/ },
  { kind: 'a control character', syntax: /\p{Cc}/u },
  { kind: 'half of a surrogate pair', syntax: /\p{Cs}/u },
] as const

/** Whether text has none of the characters that make it unreadable or read as something else. */
export const isReadable = (text: string): boolean => !unreadable.test(text)

/** The text with a blank in place of what `isReadable` refuses, for text that is no reason to refuse anything. */
export const toReadable = (text: string): string => text.replace(unreadableRuns, ' ')

/** What `isReadable` refuses, as the end of a sentence. */
export const unreadableKinds = 'no control or bidirectional formatting character'

/** The first character that `isReadable` refuses, by its kind and code point, as in "a control character (U+0007)"; null for readable text. */
export function unreadableCharacter(text: string): string | null {
  const character = unreadable.exec(text)?.[0]
  if (character === undefined) return null
  const kind = kinds.find(({ syntax }) => syntax.test(character))?.kind
  const code = (character.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, '0')
  return `${kind ?? 'a bidirectional formatting character'} (U+${code})`
}
