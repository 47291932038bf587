import { type Command, UsageError, parse, withCore } from '../command.ts'
import { printJson, printLines } from '../output.ts'

export const keys: Command = {
  summary: 'rotates and lists the keys that sign tokens',
  help: {
    usages: [
      {
        syntax: 'tollgate keys rotate [--force] [--json]',
        text:
          'Lets the next key sign from now on and publishes a new next key. The key that was active stays published ' +
          'until its last token has expired. The command is refused while verifiers may not know the next key yet ' +
          '(for six minutes after it was made). With --force it rotates all the same, which is for a key that ' +
          'leaked: tokens then fail at verifiers that do not look up unknown keys.',
      },
      {
        syntax: 'tollgate keys list [--json]',
        text: 'Lists every published key, whether it signs now, and until when a retired key stays published.',
      },
    ],
  },
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
  const { keys: published } = await withCore((core) => core.listSigningKeys())
  if (values.json) printJson({ keys: published })
  else {
    printLines(
      published.map(
        ({ kid, alg, status, createdAt, retireAt }) =>
          `${status.padEnd(7)}  ${kid}  ${alg}  made ${createdAt}${retireAt ? `, published until ${retireAt}` : ''}`,
      ),
    )
  }
  return 0
}
