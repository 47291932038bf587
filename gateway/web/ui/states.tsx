import type { ReactNode } from 'react'
import { ApiError } from '../api/client.ts'
import { useSessionState } from '../api/session/state.ts'
import { Button } from './button.tsx'

/** Shows until the data of a view is there. */
export const Loading = ({ rows = 4 }: { rows?: number }): ReactNode => (
  <div className="loading" role="status" aria-label="Loading">
    {Array.from({ length: rows }, (_, index) => (
      <span key={index} />
    ))}
  </div>
)

/** Shows instead of a list without entries. */
export const Empty = ({ children }: { children: ReactNode }): ReactNode => (
  <div className="empty">{children}</div>
)

interface FailureProps {
  readonly error: Error
  readonly retry?: () => void
  /** Whether data that was read before shows below. */
  readonly hasData?: boolean
}

/** A refusal or fault, with what to do about it. */
export function Failure({ error, retry, hasData = false }: FailureProps): ReactNode {
  const session = useSessionState(error)
  // The frame has the one link for all that the view reads; a form may be in a dialog above it.
  if (session === 'ended in frame' && retry)
    return (
      <p className="soft">
        {hasData
          ? 'This data is from before the session ended. It is read again after the login.'
          : 'It shows again after the login.'}
      </p>
    )
  if (session === 'ended' || session === 'ended in frame') return <EndedSession />
  if (session === 'renewed')
    return (
      <p className="notice" role="status">
        You are logged in again. What you typed is still here: submit it once more.
      </p>
    )
  const { code, correlationId } = error instanceof ApiError ? error : unexpected
  return (
    <div className="problem" role="alert">
      <p>{error.message}</p>
      {correlationId !== undefined && (
        <small>
          Code <a href={`/errors/${code}`}>{code}</a>, correlation id <code>{correlationId}</code>
        </small>
      )}
      {retry && <Button onClick={retry}>Try again</Button>}
    </div>
  )
}

const unexpected = { code: 'unknown', correlationId: undefined }

/** The login opens in another tab, so that forms of this one keep what was typed. */
const EndedSession = (): ReactNode => (
  <div className="problem" role="alert">
    <p>Your session has ended. Log in again in a new tab: this one keeps what you typed.</p>
    <a
      className="button"
      href={`/login?return_to=${encodeURIComponent('/app/logged-in')}`}
      target="_blank"
      rel="noopener"
    >
      Log in again (new tab)
    </a>
  </div>
)
