import { type Command, UsageError, changeCore, parse, withCore } from '../command.ts'
import type {
  CountSealedResponse,
  SealedValues,
} from '../../../proto/gen/ts-proto/tollgate/platform/v1/sealing.ts'
import { type CoreClient, retry } from '../client.ts'
import { printJson, printLines, report, table } from '../output.ts'

export const keys: Command = {
  summary: 'rotates the keys that sign tokens, and the key that encrypts secrets at rest',
  help: {
    usages: [
      {
        syntax: 'tollgate keys rotate [--force] [--json]',
        text:
          'Signs with the next key from now on and publishes a new next key. The previous key stays published until ' +
          'its last token has expired. The command is refused for six minutes after the next key was made, because ' +
          'verifiers may not have loaded it. --force rotates in spite of that; use it for a leaked key: tokens then ' +
          'fail at verifiers that do not look up unknown keys.',
      },
      {
        syntax: 'tollgate keys list [--json]',
        text: 'Lists every published key, whether it signs now, and how long a retired key stays published.',
      },
      {
        syntax: 'tollgate keys rewrap [--check] [--json]',
        text:
          'Encrypts everything that the keys in KEY_ENCRYPTION_KEYS_OLD encrypted again, with KEY_ENCRYPTION_KEY, ' +
          'while the service runs, and reports when the old keys are no longer needed. It may be stopped and ' +
          'repeated. With --check it only counts, and exits with 1 while a value is not encrypted with the current ' +
          'key.',
      },
    ],
    examples: ['./tollgate keys list', './tollgate keys rewrap --check'],
  },
  run: async (argv) => {
    const [verb, ...rest] = argv
    if (verb === 'rotate') return rotate(rest)
    if (verb === 'list') return list(rest)
    if (verb === 'rewrap') return rewrap(rest)
    throw new UsageError('keys takes "rotate", "list" or "rewrap"')
  },
}

async function rotate(argv: readonly string[]): Promise<number> {
  const { values } = parse(argv, { force: { type: 'boolean' } })
  const rotated = await changeCore(values, (core) =>
    core.rotateSigningKeys({ force: values.force ?? false }),
  )
  if (values.json) printJson(rotated)
  else printLines([`active ${rotated.activeKid}`, `next   ${rotated.nextKid}`])
  return 0
}

async function list(argv: readonly string[]): Promise<number> {
  const { values } = parse(argv, {})
  const { keys: published } = await withCore(values, (core) => core.listSigningKeys())
  const rows = published.map(({ kid, alg, status, createdAt, retireAt }) => [
    status,
    kid,
    alg,
    createdAt,
    retireAt ?? '',
  ])
  report(values, { keys: published }, () =>
    table(['status', 'kid', 'alg', 'made', 'published until'], rows),
  )
  return 0
}

async function rewrap(argv: readonly string[]): Promise<number> {
  const { values } = parse(argv, { check: { type: 'boolean' } })
  const report = await changeCore(values, async (core) => {
    const rewrapped = values.check ? 0 : await rewrapAll(core)
    return { rewrapped, ...(await core.countSealed()) }
  })
  const left = report.sealed.filter(({ keyId }) => keyId !== report.currentKeyId)
  if (values.json) printJson({ ...report, done: left.length === 0 })
  else printLines(linesOf(report, left))
  return left.length === 0 ? 0 : 1
}

async function rewrapAll(core: CoreClient): Promise<number> {
  let rewrapped = 0
  let cursor = ''
  do {
    const from = cursor
    const answer = await retry(() => core.rewrapSealed({ cursor: from }))
    rewrapped += answer.rewrapped
    cursor = answer.cursor
  } while (cursor !== '')
  return rewrapped
}

function linesOf(
  { rewrapped, sealed, currentKeyId }: CountSealedResponse & { rewrapped: number },
  left: readonly SealedValues[],
): string[] {
  return [
    ...table(
      ['table', 'values', 'key'],
      sealed.map(({ table: name, keyId, count }) => [
        name,
        String(count),
        `${keyId === '' ? 'a key without an id, or an unknown one' : keyId}${keyId === currentKeyId ? ' (current)' : ''}`,
      ]),
    ),
    `${rewrapped} values encrypted again`,
    left.length === 0
      ? 'Everything is encrypted with KEY_ENCRYPTION_KEY: KEY_ENCRYPTION_KEYS_OLD is no longer needed.'
      : 'Not everything is encrypted with KEY_ENCRYPTION_KEY: keep KEY_ENCRYPTION_KEYS_OLD, check that it has every earlier key, and run "tollgate keys rewrap" again.',
  ]
}
