/**
 * Words that are not allowed as names, with their replacements. A participle is not a noun: name
 * the thing that was found, not the finding. One idea has one word.
 */
const instead: Readonly<Record<string, string>> = {
  found: 'the thing itself: user, row, matches',
  asked: 'request, query, keys',
  given: 'options, input',
  told: 'notified, event',
  shown: 'credentials, view',
  taken: 'already consumed, claimed as isTaken',
  said: 'message, last report',
  made: 'created, or the thing itself',
  meant: 'intended value, or the thing itself',
  begun: 'transaction, started as isStarted',
  wanted: 'requested keys',
  nobodys: 'unknown client',
  irregular: 'anomalies',
  together: 'batch loader',
  joined: 'batched',
  lanes: 'concurrency',
  turns: 'concurrency, queue',
  patiently: 'retry',
  breath: 'yield every N',
  asking: 'call context',
  tab: 'pending spend',
  tabs: 'pending spend',
  relay: 'pipelined writer',
  door: 'manual ingest',
  mark: 'version',
  marks: 'versions',
  bookable: 'write plan',
  workspace: 'app',
  principal: 'caller',
}

/** Words that are too general without the thing they belong to. */
const vague = new Set(['Outcome', 'Batch', 'Result', 'Found', 'Done', 'Fresh', 'Who', 'Voice'])

/** Prepositions, which name nothing. */
const prepositions = new Set(['of', 'with'])

const wordsOf = (name: string): string[] =>
  name
    .replaceAll(/([a-z0-9])([A-Z])/g, '$1 $2')
    .toLowerCase()
    .split(/[^a-z0-9]+/)
    .filter((word) => word !== '')

/**
 * Returns the replacement for a forbidden name, else undefined. A name that is a question (isTaken,
 * wasFound) is allowed.
 */
export function forbiddenName(name: string): string | undefined {
  if (vague.has(name)) return 'of what?'
  if (prepositions.has(name)) return 'a noun'
  const words = wordsOf(name)
  const last = words.at(-1) ?? ''
  const asks = /^(is|are|has|was|were|not)$/.test(words[0] ?? '')
  return asks || !Object.hasOwn(instead, last) ? undefined : instead[last]
}
