import type { ReactNode } from 'react'
import { Button } from '../button.tsx'
import { formatCount } from '../amounts.ts'
import { TableBox } from '../table-box.tsx'
import { type FigureName, type Sums, exactFigure, figures, formatFigure } from './figures.ts'

export interface ShareRow {
  readonly key: string
  readonly name: ReactNode
  /** More about the row, one text for each of the table's `columns`. */
  readonly details?: readonly ReactNode[]
  readonly sums: Sums
}

interface ShareTableProps {
  readonly label: string
  /** The head of the first column. */
  readonly head: string
  readonly columns?: readonly string[]
  readonly rows: readonly ShareRow[]
  readonly totals: Sums
  /** Whether the figures are those of an earlier range. */
  readonly isBusy?: boolean
}

const shown: readonly FigureName[] = ['tickets', 'network', 'owner', 'billable']

/** Rows by what they cost the owner, each with its part of the total. */
export const ShareTable = ({
  label,
  head,
  columns = [],
  rows,
  totals,
  isBusy = false,
}: ShareTableProps): ReactNode => (
  <TableBox label={label}>
    <table className="shares" aria-busy={isBusy}>
      <thead>
        <tr>
          <th scope="col">{head}</th>
          {columns.map((column) => (
            <th key={column} scope="col">
              {column}
            </th>
          ))}
          {shown.map((name) => (
            <th key={name} scope="col" className="number">
              {figures[name].label}
            </th>
          ))}
          <th scope="col" className="number">
            Share of cost
          </th>
        </tr>
      </thead>
      <tbody>
        {rows.map(({ key, name, details = [], sums }) => (
          <tr key={key}>
            <th scope="row">{name}</th>
            {details.map((detail, index) => (
              <td key={columns[index]}>{detail}</td>
            ))}
            {shown.map((figure) => (
              <td key={figure} className="number" title={exactFigure(figure, sums)}>
                {formatFigure(figure, sums)}
              </td>
            ))}
            <Share part={figures.owner.read(sums)} total={figures.owner.read(totals)} />
          </tr>
        ))}
      </tbody>
    </table>
  </TableBox>
)

function Share({ part, total }: { part: bigint; total: bigint }): ReactNode {
  if (total === 0n) return <td className="number">–</td>
  const tenths = Number((part * 1000n) / total)
  return (
    <td className="number">
      {(tenths / 10).toFixed(1)} %
      <svg className="share" viewBox="0 0 1000 1" preserveAspectRatio="none" aria-hidden="true">
        <rect width={tenths} height="1" />
      </svg>
    </td>
  )
}

/** Sorts by the cost of the owner, then by tickets; the sum of further rows comes last. */
export const byCost = (a: ShareRow, b: ShareRow): number =>
  Number(a.key === 'other') - Number(b.key === 'other') ||
  compare(figures.owner.read(b.sums), figures.owner.read(a.sums)) ||
  b.sums.requestCount - a.sums.requestCount

const compare = (a: bigint, b: bigint): number => (a < b ? -1 : a > b ? 1 : 0)

interface RowPagesProps {
  readonly page: number
  readonly size: number
  readonly total: number
  readonly onPage: (page: number) => void
}

/** The pages of a table whose rows are all there. */
export function RowPages({ page, size, total, onPage }: RowPagesProps): ReactNode {
  const last = Math.max(1, Math.ceil(total / size))
  if (last === 1) return null
  return (
    <nav className="row" aria-label="Pages">
      <Button isSmall disabled={page <= 1} onClick={() => onPage(page - 1)}>
        Back
      </Button>
      <span className="soft">
        Page {formatCount(page)} of {formatCount(last)}, {formatCount(total)} rows in all
      </span>
      <Button isSmall disabled={page >= last} onClick={() => onPage(page + 1)}>
        Next
      </Button>
    </nav>
  )
}
