import type {
  CatalogRead,
  Offer,
} from '../../../../proto/gen/ts-proto/tollgate/plans/v1/discovery.ts'
import { action, createCommand } from '../../command.ts'
import { type Option, appFilter, argument, integer, parsed, text } from '../../options.ts'
import { table } from '../../output.ts'

/** Parses PIPELINE[:MODEL]. Tickets split their pipeline at the first colon, too. */
export function parseOffer(name: string): Pick<Offer, 'pipeline' | 'modelId'> {
  const colon = name.indexOf(':')
  return colon < 0
    ? { pipeline: name, modelId: '*' }
    : { pipeline: name.slice(0, colon), modelId: name.slice(colon + 1) }
}

/** Formats PIPELINE[:MODEL]. */
export const nameOffer = ({ pipeline, modelId }: Pick<Offer, 'pipeline' | 'modelId'>): string =>
  modelId === '*' ? pipeline : `${pipeline}:${modelId}`

const offer: Option<ReturnType<typeof parseOffer>> = {
  ...argument('PIPELINE[:MODEL]'),
  convert: ([name = '']) => parseOffer(name),
}

const linesOf = (read: CatalogRead | undefined): string[] =>
  read === undefined
    ? []
    : [
        `${read.url} was read ${read.readAt === undefined ? 'never' : `at ${read.readAt}`}` +
          (read.error === undefined ? '' : `; at ${read.triedAt ?? ''} it ${read.error}`),
      ]

const list = action({
  text: "Prints the pipelines and models that plans may name and credit may be bound to, their source, and the result of the last read of CATALOG_URL. With --app also those of that app's tickets.",
  options: {
    clientId: appFilter,
    after: parsed(text('PIPELINE[:MODEL]', { meaning: 'Starts after this entry.' }), parseOffer),
    limit: integer('N', {
      from: 1,
      to: 1_000,
      fallback: 100,
      meaning: 'At most N, 100 by default, up to 1000.',
    }),
  },
  read: (core, { clientId, after, limit }) =>
    core.discovery.listOffers({
      clientId,
      afterPipeline: after?.pipeline,
      afterModelId: after?.modelId,
      limit,
    }),
  lines: ({ offers, read }) => [
    ...table(offers, [['pipeline', nameOffer], 'source', ['added', 'addedAt']], 'no pipelines'),
    ...linesOf(read),
  ],
})

const refresh = action({
  text: 'Reads CATALOG_URL and the newest tickets now. Exits with 1 when CATALOG_URL cannot be read.',
  change: async (core) => (await core.discovery.refreshOffers({})).read,
  json: (read) => read ?? null,
  lines: (read) =>
    read === undefined ? ['CATALOG_URL is not set; read the tickets'] : linesOf(read),
  isFailure: (read) => read?.error !== undefined,
})

const add = action({
  text: 'Adds a pipeline with every model, or one of its models, for every app.',
  options: { offer },
  change: async (core, { offer }) => {
    await core.discovery.createOffer(offer)
    return { ...offer, added: true }
  },
  lines: (answer) => [`${nameOffer(answer)} is in the catalogue`],
})

const remove = action({
  text: 'Removes an entry that "catalog add" added. Plans that name it keep their prices.',
  options: { offer },
  change: async (core, { offer }) => {
    await core.discovery.deleteOffer(offer)
    return { ...offer, removed: true }
  },
  lines: (answer) => [`${nameOffer(answer)} is no longer in the catalogue of operators`],
})

export const catalog = createCommand('catalog', {
  summary: 'lists, reads and changes the catalogue of pipelines and models',
  examples: ['./tollgate catalog list', './tollgate catalog add text-to-image:acme/sdxl'],
  actions: { list, refresh, add, remove },
})
