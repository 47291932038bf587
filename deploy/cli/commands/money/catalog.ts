import type {
  CatalogRead,
  Offer,
} from '../../../../proto/gen/ts-proto/tollgate/plans/v1/discovery.ts'
import {
  type Command,
  UsageError,
  changeCore,
  parse,
  parseOptions,
  parsePageSize,
  runAction,
  withCore,
} from '../../command.ts'
import { printJson, printLines, report, table } from '../../output.ts'

export const catalog: Command = {
  summary: 'lists, reads and changes the catalogue of pipelines and models',
  help: {
    usages: [
      {
        syntax: 'tollgate catalog list [--app APP] [--after PIPELINE[:MODEL]] [--limit N] [--json]',
        text: "Prints the pipelines and models that plans may name and credit may be bound to, their source, and the result of the last read of CATALOG_URL. With --app also those of that app's tickets.",
      },
      {
        syntax: 'tollgate catalog refresh [--json]',
        text: 'Reads CATALOG_URL and the newest tickets now. Exits with 1 when CATALOG_URL cannot be read.',
      },
      {
        syntax: 'tollgate catalog add PIPELINE[:MODEL] [--json]',
        text: 'Adds a pipeline with every model, or one of its models, for every app.',
      },
      {
        syntax: 'tollgate catalog remove PIPELINE[:MODEL] [--json]',
        text: 'Removes an entry that "catalog add" added. Plans that name it keep their prices.',
      },
    ],
    options: [
      {
        title: 'Options',
        options: [
          ['--after PIPELINE[:MODEL]', 'Starts after this entry.'],
          ['--limit N', 'At most N, 100 by default, up to 1000.'],
        ],
      },
    ],
    examples: ['./tollgate catalog list', './tollgate catalog add text-to-image:acme/sdxl'],
  },
  run: async ([verb = '', ...rest]) => {
    if (verb === 'refresh') return refresh(rest)
    return runAction('catalog', { list, add, remove })([verb, ...rest])
  },
}

async function list(argv: readonly string[]): Promise<void> {
  const values = parseOptions(argv, {
    app: { type: 'string' },
    after: { type: 'string' },
    limit: { type: 'string' },
  })
  const after = values.after === undefined ? undefined : offerOf(values.after)
  const answer = await withCore(values, (core) =>
    core.listOffers({
      clientId: values.app,
      afterPipeline: after?.pipeline,
      afterModelId: after?.modelId,
      limit: parsePageSize(values.limit),
    }),
  )
  report(values, answer, () => [
    ...table(['pipeline', 'source', 'added'], answer.offers.map(rowOf), 'no pipelines'),
    ...linesOf(answer.read),
  ])
}

const nameOf = ({ pipeline, modelId }: Pick<Offer, 'pipeline' | 'modelId'>): string =>
  modelId === '*' ? pipeline : `${pipeline}:${modelId}`

const rowOf = (offer: Offer): string[] => [nameOf(offer), offer.source, offer.addedAt ?? '']

async function refresh(argv: readonly string[]): Promise<number> {
  const values = parseOptions(argv, {})
  const { read } = await changeCore(values, (core) => core.refreshOffers({}))
  if (values.json) printJson(read ?? null)
  else printLines(read === undefined ? ['CATALOG_URL is not set; read the tickets'] : linesOf(read))
  return read?.error === undefined ? 0 : 1
}

const linesOf = (read: CatalogRead | undefined): string[] =>
  read === undefined
    ? []
    : [
        `${read.url} was read ${read.readAt === undefined ? 'never' : `at ${read.readAt}`}` +
          (read.error === undefined ? '' : `; at ${read.triedAt ?? ''} it ${read.error}`),
      ]

async function add(argv: readonly string[]): Promise<void> {
  const { values, offer } = oneOffer('add', argv)
  await changeCore(values, (core) => core.addOffer(offer))
  report(values, { ...offer, added: true }, () => [`${nameOf(offer)} is in the catalogue`])
}

async function remove(argv: readonly string[]): Promise<void> {
  const { values, offer } = oneOffer('remove', argv)
  await changeCore(values, (core) => core.removeOffer(offer))
  report(values, { ...offer, removed: true }, () => [
    `${nameOf(offer)} is no longer in the catalogue of operators`,
  ])
}

function oneOffer(verb: string, argv: readonly string[]) {
  const { values, positionals } = parse(argv, {})
  const [name, ...rest] = positionals
  if (name === undefined || rest.length > 0)
    throw new UsageError(`catalog ${verb} needs one PIPELINE[:MODEL]`)
  return { values, offer: offerOf(name) }
}

// Tickets split their pipeline at the first colon, too.
function offerOf(name: string) {
  const colon = name.indexOf(':')
  return colon < 0
    ? { pipeline: name, modelId: '*' }
    : { pipeline: name.slice(0, colon), modelId: name.slice(colon + 1) }
}
