import { type Command, UsageError, parse, printJson, printLines, withCore } from '../command.ts'

export const keys: Command = {
  summary: 'rotates and lists the keys that sign tokens',
  help: `tollgate keys rotate [--force] [--json]
  The next key signs from now on; the active one stays published until its last token is dead; a new next key is
  published. Refused while verifiers may not know the next key yet (six minutes after it was made); --force rotates
  all the same, which is for a key that leaked: tokens fail at verifiers that do not look unknown keys up.

tollgate keys list [--json]
  Every published key, whether it signs now, and until when a retired one stays published.
`,
  run: async (argv) => {
    const [verb, ...rest] = argv
    if (verb === 'rotate') return rotate(rest)
    if (verb === 'list') return list(rest)
    throw new UsageError('keys takes "rotate" or "list"')
  },
}

async function rotate(argv: readonly string[]): Promise<number> {
  const { values } = parse(argv, { force: { type: 'boolean' }, json: { type: 'boolean' } })
  const rotated = await withCore((core) => core.rotateSigningKeys({ force: values.force ?? false }))
  if (values.json) printJson(rotated)
  else printLines([`active ${rotated.activeKid}`, `next   ${rotated.nextKid}`])
  return 0
}

async function list(argv: readonly string[]): Promise<number> {
  const { values } = parse(argv, { json: { type: 'boolean' } })
  const { keys: found } = await withCore((core) => core.listSigningKeys())
  if (values.json) printJson({ keys: found })
  else {
    printLines(
      found.map(
        ({ kid, alg, status, createdAt, retireAt }) =>
          `${status.padEnd(7)}  ${kid}  ${alg}  made ${createdAt}${retireAt ? `, published until ${retireAt}` : ''}`,
      ),
    )
  }
  return 0
}
