import type { ReactNode } from 'react'

/** Holds a table that scrolls sideways on a narrow screen, also by keyboard. */
export const TableBox = ({
  label,
  children,
}: {
  label: string
  children: ReactNode
}): ReactNode => (
  <div className="tablebox" role="region" aria-label={label} tabIndex={0}>
    {children}
  </div>
)
