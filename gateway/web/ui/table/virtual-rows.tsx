import { type Range, defaultRangeExtractor, useWindowVirtualizer } from '@tanstack/react-virtual'
import { Fragment, type ReactNode, useCallback, useLayoutEffect, useRef, useState } from 'react'

interface VirtualRowsProps<Row> {
  readonly rows: readonly Row[]
  readonly columns: number
  readonly keyOf: (row: Row) => string
  readonly children: (row: Row) => ReactNode
}

/** The height of a row with one line, until it was measured. */
const usualHeight = 41

/**
 * The rows of a table near the window, and gaps as high as the rows between. The row with the focus
 * stays, so that scrolling never loses it.
 */
export function VirtualRows<Row>(props: VirtualRowsProps<Row>): ReactNode {
  const { rows, columns, keyOf, children } = props
  const body = useRef<HTMLTableSectionElement>(null)
  const [focused, setFocused] = useState<number | null>(null)
  const [scrollMargin, setScrollMargin] = useState(0)
  useLayoutEffect(() => {
    const { top = 0 } = body.current?.getBoundingClientRect() ?? {}
    setScrollMargin(Math.round(top + window.scrollY))
  }, [rows.length])
  const virtualizer = useWindowVirtualizer<HTMLTableRowElement>({
    count: rows.length,
    estimateSize: () => usualHeight,
    overscan: 12,
    scrollMargin,
    getItemKey: useCallback(
      (index: number) => {
        const row = rows[index]
        return row === undefined ? index : keyOf(row)
      },
      [rows, keyOf],
    ),
    rangeExtractor: useCallback((range: Range) => withRow(range, focused), [focused]),
  })
  let end = scrollMargin
  const shown = virtualizer.getVirtualItems().map(({ index, key, start, ...item }) => {
    const row = rows[index]
    const gap = start - end
    end = item.end
    return (
      <Fragment key={key}>
        <Gap height={gap} columns={columns} />
        {row !== undefined && (
          <tr ref={virtualizer.measureElement} data-index={index} aria-rowindex={index + 2}>
            {children(row)}
          </tr>
        )}
      </Fragment>
    )
  })
  return (
    <tbody
      ref={body}
      onFocus={({ target }) => {
        const index = Number(target.closest('tr')?.dataset['index'])
        setFocused(Number.isInteger(index) ? index : null)
      }}
      onBlur={() => setFocused(null)}
    >
      {shown}
      <Gap height={virtualizer.getTotalSize() + scrollMargin - end} columns={columns} />
    </tbody>
  )
}

function withRow(range: Range, row: number | null): number[] {
  const near = defaultRangeExtractor(range)
  if (row === null || row >= range.count || near.includes(row)) return near
  return [...near, row].toSorted((a, b) => a - b)
}

/** A row without content. Its height is an attribute, because the page's policy refuses styles. */
const Gap = ({ height, columns }: { height: number; columns: number }): ReactNode =>
  height > 0 ? (
    <tr aria-hidden="true">
      <td className="gap" colSpan={columns} height={height} />
    </tr>
  ) : null
