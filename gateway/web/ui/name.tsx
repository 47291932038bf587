import type { ReactNode } from 'react'

/**
 * A text that a tenant chose, such as a user's id. It breaks anywhere, and its direction does not
 * affect the text around it.
 */
export const Name = ({ children }: { children: string }): ReactNode => (
  <bdi className="name">{children}</bdi>
)
