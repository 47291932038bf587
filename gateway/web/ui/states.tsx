import type { ReactNode } from 'react'
import { ApiError } from '../api/client.ts'
import { Button } from './button.tsx'

/** What a view shows until its data is there. */
export const Loading = ({ rows = 4 }: { rows?: number }): ReactNode => (
  <div className="loading" role="status" aria-label="Loading">
    {Array.from({ length: rows }, (_, index) => (
      <span key={index} />
    ))}
  </div>
)

/** What a view shows when there is nothing to list. */
export const Empty = ({ children }: { children: ReactNode }): ReactNode => (
  <div className="empty">{children}</div>
)

/** A refusal or fault, with what to do about it. */
export function Failure({ error, retry }: { error: Error; retry?: () => void }): ReactNode {
  const { status, code, correlationId } = error instanceof ApiError ? error : unexpected
  return (
    <div className="problem" role="alert">
      <p>{error.message}</p>
      {correlationId !== undefined && (
        <small>
          Code <a href={`/errors/${code}`}>{code}</a>, correlation id <code>{correlationId}</code>
        </small>
      )}
      {status === 401 && (
        <a
          className="button"
          href={`/login?return_to=${encodeURIComponent(location.pathname + location.search)}`}
        >
          Log in again
        </a>
      )}
      {retry && status !== 401 && <Button onClick={retry}>Try again</Button>}
    </div>
  )
}

const unexpected = { status: 0, code: 'unknown', correlationId: undefined }
