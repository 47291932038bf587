import { type Breakdown, breakdowns } from './breakdown.tsx'
import { type FigureName, parseFigure } from './figures.ts'
import { type RangeSearch, parseRangeSearch } from './range.ts'

/** The addresses of the overview and of the usage view. */

export interface ChartSearch {
  /** The figure of the chart. */
  readonly figure?: FigureName
  /** The division of the chart's bars. */
  readonly split?: 'model'
}

export type OverviewSearch = RangeSearch & ChartSearch

export interface UsageSearch extends RangeSearch, ChartSearch {
  readonly by?: Breakdown | 'loss'
  readonly user?: string
  readonly pipeline?: string
  readonly model?: string
  readonly page?: number
}

export function parseOverviewSearch(search: Record<string, unknown>): OverviewSearch {
  const figure = parseFigure(search['figure'])
  return {
    ...parseRangeSearch(search),
    ...(figure && { figure }),
    ...(search['split'] === 'model' && { split: 'model' as const }),
  }
}

export function parseUsageSearch(search: Record<string, unknown>): UsageSearch {
  const by = [...breakdowns, 'loss' as const].find((known) => known === search['by'])
  const [user, pipeline, model] = ['user', 'pipeline', 'model'].map((name) => toText(search[name]))
  const page = Number(search['page'])
  return {
    ...parseOverviewSearch(search),
    ...(by && { by }),
    ...(user !== undefined && { user }),
    ...(pipeline !== undefined && { pipeline }),
    ...(model !== undefined && { model }),
    ...(Number.isInteger(page) && page > 1 && { page }),
  }
}

/** Returns a value of an address as text. The router reads `42` as a number, `true` as a boolean. */
export const toText = (value: unknown): string | undefined =>
  ['string', 'number', 'boolean'].includes(typeof value) && value !== '' ? String(value) : undefined

/** The part of an address that is its range. */
export const pickRange = ({ range, from, to }: RangeSearch): RangeSearch => ({
  ...(range && { range }),
  ...(from !== undefined && { from }),
  ...(to !== undefined && { to }),
})

/** An address without the grouping and page of its table. */
export function withoutTable(search: UsageSearch): UsageSearch {
  const { by: _by, page: _page, ...rest } = search
  return rest
}

/** Returns an address with another range. The page of a table begins again. */
export function withRange(search: UsageSearch, chosen: RangeSearch): UsageSearch {
  const { range: _range, from: _from, to: _to, page: _page, ...rest } = search
  return { ...rest, ...chosen }
}

/** Returns an address with another figure or division of its chart. */
export function withChart(search: UsageSearch, chart: ChartSearch): UsageSearch {
  const { figure: _figure, split: _split, ...rest } = search
  return { ...rest, ...chart }
}
