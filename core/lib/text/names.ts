/**
 * The rule for new names of apps and registered clients, and for new external ids. Pages, mails and
 * logs show these names next to our own words. The rule applies in addition to `isReadable`, only
 * at creation and change: stored names stay valid.
 */

/** Folded words that our pages write next to a name: core/identity/apps/clients.ts. */
const ownWords = ['registeredwith']
const shortest = Math.min(...ownWords.map((words) => words.length))

// Unicode property names as in UTS #18. Ignorable characters are invisible, so two different names
// could look the same.
const ignorable = /\p{Default_Ignorable_Code_Point}/u
const letterOrDigit = /[\p{L}\p{N}]/u
const marksAndSeparators = /[^\p{L}\p{N}]/gu

/** Returns why the text cannot be a new name, as the end of a sentence; null if it can. */
export function nameProblem(text: string): string | null {
  const hidden = ignorable.exec(text)?.[0]
  if (hidden !== undefined) {
    const code = (hidden.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, '0')
    return `must not contain an invisible character (U+${code})`
  }
  if (!letterOrDigit.test(text)) return 'must have a letter or a digit'
  const isPlainAndShort = text.length < shortest && /^[\x20-\x7e]*$/.test(text)
  if (isPlainAndShort || !ownWords.some((words) => fold(text).includes(words))) return null
  return 'must not resemble the words "registered with", which this service shows itself'
}

/**
 * Letters of other alphabets, small capitals, digits and signs that look like the letters of
 * `ownWords` (complete list: UTS #39).
 */
const lookalikes: Readonly<Record<string, string>> = {
  d: 'ԁᴅɗđժᑯɖᎠꓓ',
  e: 'еҽєεϵᴇɇəɘɛ℮3Ꭼꓰ',
  g: 'ɡցɢԍɠ9Ꮐꓖ',
  h: 'һհʜнηħɦᎻꓧ',
  i: 'іιɪıӏɩꙇl1ᎥꓲƖ',
  r: 'гᴦʀꭇꭈɼɽɾяᴙᖇᎡᏒꓣ',
  s: 'ѕꜱ5ʂƨᏚꓢ',
  t: 'тτᴛ7ƭŧ†Ꭲꓔ',
  w: 'ѡԝᴡшщωաɯᗯꮤᎳꓪ',
}
const plain = (text: string): string => text.normalize('NFKD').toLowerCase().normalize('NFKD')
const latin = new Map(
  Object.entries(lookalikes).flatMap(([letter, others]) =>
    [...plain(others)].map((other) => [other, letter] as const),
  ),
)

/** First code points of framed alphabets, which have no compatibility form: 🅐, 🅰 and 🇦. */
const framed = [0x1f150, 0x1f170, 0x1f1e6]

function unframe(character: string): string {
  const code = character.codePointAt(0) ?? 0
  const start = framed.find((first) => code >= first && code < first + 26)
  return start === undefined ? character : String.fromCharCode(0x61 + code - start)
}

/**
 * The text as a reader perceives it: one case, no accents or separators, look-alikes as Latin
 * letters.
 */
function fold(text: string): string {
  const letters = Array.from(plain(text), (character) => {
    const letter = unframe(character)
    return latin.get(letter) ?? letter
  })
  return letters.join('').replace(marksAndSeparators, '').replaceAll('vv', 'w')
}
