import { type ReactNode, useEffect } from 'react'
import { focusTitle } from './focus/focus.ts'

interface PageProps {
  readonly title: string
  readonly about?: ReactNode
  /** The view's own actions, at the right of its title. */
  readonly actions?: ReactNode
  readonly children: ReactNode
}

/** The path of the first view. It is read with the document, so it needs no announcement. */
let firstPath: string | undefined
let hasMoved = false

/**
 * Moves the focus to the title of a new view, so that screen readers read it and the keyboard begins
 * there. The focus stays if the view has already taken it.
 */
function announce(): void {
  const path = window.location.pathname
  firstPath ??= path
  hasMoved ||= path !== firstPath
  const content = document.querySelector('main')
  if (hasMoved && content?.contains(document.activeElement) !== true) focusTitle()
}

/** A view: its title, which is also the document's, and its content. */
export function Page({ title, about, actions, children }: PageProps): ReactNode {
  useEffect(() => {
    document.title = `${title} · tollgate`
  }, [title])
  useEffect(announce, [])
  return (
    <>
      <header className="head">
        <div>
          <h1 tabIndex={-1}>{title}</h1>
          {about && <p>{about}</p>}
        </div>
        {actions}
      </header>
      {children}
    </>
  )
}
