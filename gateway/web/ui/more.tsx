import { type ReactNode, useEffect, useRef } from 'react'
import { Button } from './button.tsx'

interface MoreProps {
  readonly query: {
    readonly hasNextPage: boolean
    readonly isFetchingNextPage: boolean
    readonly isFetchNextPageError?: boolean
    readonly fetchNextPage: () => unknown
  }
  readonly label: string
  /** Whether only a click loads the next page, because the view goes on below the list. */
  readonly isManual?: boolean
}

/** How far below the window the end of a list is when its next page is loaded. */
const aheadOfEnd = '400px'

/**
 * A button for the next page of a list, which is also loaded when the reader scrolls near it. After
 * a failure only the button tries again. Nothing shows at the end of the list.
 */
export function More({ query, label, isManual = false }: MoreProps): ReactNode {
  const { hasNextPage, isFetchingNextPage, isFetchNextPageError = false } = query
  const end = useRef<HTMLDivElement>(null)
  const fetchNextPage = useRef(query.fetchNextPage)
  useEffect(() => {
    fetchNextPage.current = query.fetchNextPage
  })
  const isWaiting = hasNextPage && !isFetchingNextPage && !isFetchNextPageError && !isManual
  useEffect(() => {
    if (!isWaiting || end.current === null) return undefined
    const observer = new IntersectionObserver(
      (entries) => {
        // A list that fits the window is not scrolled, and loads nothing by itself.
        if (window.scrollY > 0 && entries.some(({ isIntersecting }) => isIntersecting))
          void fetchNextPage.current()
      },
      { rootMargin: aheadOfEnd },
    )
    observer.observe(end.current)
    return () => observer.disconnect()
  }, [isWaiting])
  if (!hasNextPage) return null
  return (
    <div ref={end}>
      <Button onClick={() => void query.fetchNextPage()} disabled={isFetchingNextPage}>
        {isFetchingNextPage ? 'Loading …' : label}
      </Button>
    </div>
  )
}
