import { type FigureName, type Sums, figures } from './figures.ts'

/** The figures of a model in a day or hour. */
export type Row = Sums & { readonly pipeline: string; readonly modelId: string } & (
    { readonly date: string } | { readonly hour: string }
  )

export interface Model {
  readonly key: string
  readonly name: string
  readonly isRest: boolean
  readonly cost: bigint
  /** A figure by the start of its day or hour. */
  readonly values: ReadonlyMap<number, bigint>
}

/** Returns the start of a row's day or hour, in Unix milliseconds. */
export const startOf = (row: Row): number => Date.parse('hour' in row ? row.hour : row.date)

/** Returns the models of rows, the costliest first and the sum of further ones last. */
export function toModels(rows: readonly Row[], figure: FigureName): Model[] {
  const groups = Map.groupBy(rows, ({ pipeline, modelId }) => JSON.stringify([pipeline, modelId]))
  return [...groups]
    .map(([key, group]): Model => {
      const { pipeline = '', modelId = '' } = group[0] ?? {}
      const isRest = pipeline === 'other' && modelId === 'other'
      return {
        key,
        name: isRest ? 'All further models' : `${pipeline}: ${modelId}`,
        isRest,
        cost: group.reduce((sum, row) => sum + figures.owner.read(row), 0n),
        values: sumByStart(group, figure),
      }
    })
    .sort((a, b) => Number(a.isRest) - Number(b.isRest) || (a.cost < b.cost ? 1 : -1))
}

/** Returns the sum of each day or hour, as a model named `other: other` has the key of the rest. */
function sumByStart(rows: readonly Row[], figure: FigureName): Map<number, bigint> {
  const sums = new Map<number, bigint>()
  for (const row of rows) {
    const start = startOf(row)
    sums.set(start, (sums.get(start) ?? 0n) + figures[figure].read(row))
  }
  return sums
}
