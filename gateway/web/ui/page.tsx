import { type ReactNode, useEffect } from 'react'

interface PageProps {
  readonly title: string
  readonly about?: ReactNode
  /** The view's own actions, at the right of its title. */
  readonly actions?: ReactNode
  readonly children: ReactNode
}

/** A view: its title, which is also the document's, and its content. */
export function Page({ title, about, actions, children }: PageProps): ReactNode {
  useEffect(() => {
    document.title = `${title} · tollgate`
  }, [title])
  return (
    <>
      <header className="head">
        <div>
          <h1>{title}</h1>
          {about && <p>{about}</p>}
        </div>
        {actions}
      </header>
      {children}
    </>
  )
}
