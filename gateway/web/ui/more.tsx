import type { ReactNode } from 'react'
import { Button } from './button.tsx'

interface MoreProps {
  readonly query: {
    readonly hasNextPage: boolean
    readonly isFetchingNextPage: boolean
    readonly fetchNextPage: () => unknown
  }
  readonly label: string
}

/** A button for the next page of a list. Nothing shows at its end. */
export const More = ({ query, label }: MoreProps): ReactNode =>
  query.hasNextPage ? (
    <div>
      <Button onClick={() => void query.fetchNextPage()} disabled={query.isFetchingNextPage}>
        {query.isFetchingNextPage ? 'Loading …' : label}
      </Button>
    </div>
  ) : null
