import type { ReactNode } from 'react'
import { Failure, Loading } from './states.tsx'

interface AnswerProps<Data> {
  readonly query: {
    readonly data: Data | undefined
    readonly error: Error | null
    readonly refetch: () => unknown
  }
  readonly rows?: number
  readonly children: (data: Data) => ReactNode
}

/**
 * Shows the data of a query, or that it loads, or why it failed. A failed repetition shows above the
 * data that was read before.
 */
export function Answer<Data>({ query, rows, children }: AnswerProps<Data>): ReactNode {
  const { data, error, refetch } = query
  return (
    <>
      {error && <Failure error={error} retry={() => void refetch()} hasData={data !== undefined} />}
      {data !== undefined && children(data)}
      {data === undefined && !error && <Loading {...(rows !== undefined && { rows })} />}
    </>
  )
}
