import { type ReactNode, useMemo } from 'react'
import { TableBox } from '../table-box.tsx'
import { VirtualRows } from './virtual-rows.tsx'

export interface Column {
  readonly name: string
  readonly isNumber?: boolean
}

interface LongTableProps<Row> {
  readonly label: string
  readonly caption?: string
  readonly columns: readonly Column[]
  /** Pages of a list, as they were loaded. */
  readonly pages: readonly (readonly Row[])[]
  /** Whether the list has further pages. */
  readonly hasMore: boolean
  readonly keyOf: (row: Row) => string
  /** The cells of a row. */
  readonly children: (row: Row) => ReactNode
}

/** With so many rows and fewer, all are in the document, where the browser's search finds them. */
const wholeMax = 200

/**
 * A table whose rows were loaded page by page. Of a long one, the document has only the rows near
 * the window, so that a hundred thousand rows scroll. Each row has its number, for screen readers.
 */
export function LongTable<Row>(props: LongTableProps<Row>): ReactNode {
  const { label, caption, columns, pages, hasMore, keyOf, children } = props
  const rows = useMemo(() => pages.flat(), [pages])
  return (
    <TableBox label={label}>
      <table aria-rowcount={hasMore ? -1 : rows.length + 1}>
        {caption !== undefined && <caption>{caption}</caption>}
        <thead>
          <tr aria-rowindex={1}>
            {columns.map(({ name, isNumber = false }) => (
              <th key={name} scope="col" {...(isNumber && { className: 'number' })}>
                {name}
              </th>
            ))}
          </tr>
        </thead>
        {rows.length > wholeMax ? (
          <VirtualRows rows={rows} columns={columns.length} keyOf={keyOf}>
            {children}
          </VirtualRows>
        ) : (
          <tbody>
            {rows.map((row, index) => (
              <tr key={keyOf(row)} aria-rowindex={index + 2}>
                {children(row)}
              </tr>
            ))}
          </tbody>
        )}
      </table>
    </TableBox>
  )
}
