import { formatCount, formatExactMicros, formatMicros } from '../amounts.ts'

/** The figures that sums of tickets have: totals, days, and rows of a grouping. */

export interface Sums {
  readonly requestCount: number
  readonly networkFeeUsdMicros: string
  readonly ownerChargeUsdMicros: string
  readonly platformFeeUsdMicros: string
  readonly endUserBillableUsdMicros?: string
}

export const figureNames = ['tickets', 'network', 'owner', 'cut', 'billable'] as const
export type FigureName = (typeof figureNames)[number]

interface Figure {
  readonly label: string
  /** A count, or USD micros. */
  readonly read: (sums: Sums) => bigint
  readonly isMoney: boolean
}

const money = (label: string, read: (sums: Sums) => string): Figure => ({
  label,
  read: (sums) => BigInt(read(sums)),
  isMoney: true,
})

export const figures: Readonly<Record<FigureName, Figure>> = {
  tickets: { label: 'Tickets', read: (sums) => BigInt(sums.requestCount), isMoney: false },
  network: money('Network cost', (sums) => sums.networkFeeUsdMicros),
  owner: money('Charged to the owner', (sums) => sums.ownerChargeUsdMicros),
  cut: money('Platform cut', (sums) => sums.platformFeeUsdMicros),
  billable: money('Billed to end users', (sums) => sums.endUserBillableUsdMicros ?? '0'),
}

/** Returns the figure that an address names, if any. */
export const parseFigure = (name: unknown): FigureName | undefined =>
  figureNames.find((known) => known === name)

export function formatFigure(name: FigureName, sums: Sums): string {
  const { read, isMoney } = figures[name]
  return isMoney ? formatMicros(`${read(sums)}`) : formatCount(sums.requestCount)
}

/** Formats a value of a figure, such as the sum of several rows. */
export const formatValue = (name: FigureName, value: bigint): string =>
  figures[name].isMoney ? formatMicros(`${value}`) : formatCount(Number(value))

/** The height of a bar: tickets, or dollars. */
export const toHeight = (name: FigureName, value: bigint): number =>
  Number(value) / (figures[name].isMoney ? 1e6 : 1)

/** The exact value of a figure, for the hint on it; undefined where the figure is exact. */
export function exactFigure(name: FigureName, sums: Sums): string | undefined {
  const { read, isMoney } = figures[name]
  return isMoney ? formatExactMicros(`${read(sums)}`) : undefined
}
