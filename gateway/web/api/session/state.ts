import { useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import { ApiError } from '../client.ts'
import { sessionQuery } from '../queries.ts'

const isEnd = (error: Error | null): boolean => error instanceof ApiError && error.status === 401

/** Whether a refusal may mean that the session has ended. Hidden routes then answer with 404. */
export const isOfCredential = (error: Error): boolean =>
  error instanceof ApiError && [401, 403, 404].includes(error.status)

/**
 * Returns whether the session had ended when `error` was received, whether the frame shows that above
 * the view, and whether there is another one since.
 */
export function useSessionState(error: Error): 'valid' | 'ended' | 'ended in frame' | 'renewed' {
  const [shownAt] = useState(Date.now)
  const session = useQuery({ ...sessionQuery, enabled: false })
  if (!isOfCredential(error)) return 'valid'
  if (isEnd(session.error)) return session.error === error ? 'ended' : 'ended in frame'
  if (session.errorUpdatedAt >= shownAt) return 'renewed'
  return isEnd(error) ? 'ended' : 'valid'
}
