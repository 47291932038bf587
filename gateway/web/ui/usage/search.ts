import { type Breakdown, breakdowns } from './breakdown.tsx'
import { type FigureName, parseFigure } from './figures.ts'
import { type RangeSearch, parseRangeSearch } from './range.ts'

/** What the addresses of the overview and of the usage view hold. */

export interface OverviewSearch extends RangeSearch {
  /** The figure of the chart. */
  readonly figure?: FigureName
}

export interface UsageSearch extends OverviewSearch {
  readonly by?: Breakdown | 'loss'
  readonly user?: string
  readonly page?: number
}

export function parseOverviewSearch(search: Record<string, unknown>): OverviewSearch {
  const figure = parseFigure(search['figure'])
  return { ...parseRangeSearch(search), ...(figure && { figure }) }
}

export function parseUsageSearch(search: Record<string, unknown>): UsageSearch {
  const by = [...breakdowns, 'loss' as const].find((known) => known === search['by'])
  const user = toText(search['user'])
  const page = Number(search['page'])
  return {
    ...parseOverviewSearch(search),
    ...(by && { by }),
    ...(user !== undefined && { user }),
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

/** Returns an address with another range. The page of a table begins again. */
export function withRange(search: UsageSearch, chosen: RangeSearch): UsageSearch {
  const { range: _range, from: _from, to: _to, page: _page, ...rest } = search
  return { ...rest, ...chosen }
}
