import { useBlocker } from '@tanstack/react-router'
import { type ReactNode, useRef } from 'react'
import { Button } from './button.tsx'
import { Confirm } from './confirm.tsx'
import { CopyButton } from './copy-button.tsx'

interface ShownOnceProps {
  /** What the text is, such as “Client secret”. */
  readonly label: string
  readonly text: string
  readonly children?: ReactNode
  readonly onClose: () => void
}

/**
 * A new secret, which the service never shows again, with a button that copies it. Leaving the view
 * asks first.
 */
export function ShownOnce({ label, text, children, onClose }: ShownOnceProps): ReactNode {
  const isStored = useRef(false)
  const leaving = useBlocker({
    shouldBlockFn: ({ current, next }) => !isStored.current && current.pathname !== next.pathname,
    enableBeforeUnload: () => !isStored.current,
    withResolver: true,
  })
  return (
    <section className="notice" aria-label={label} role="status">
      <h2>{label}</h2>
      <p>Store it now. It is not shown again.</p>
      <Copyable text={text} />
      {children}
      <div className="row">
        <Button
          onClick={() => {
            // Closing it may lead to another view.
            isStored.current = true
            onClose()
          }}
        >
          I have stored it
        </Button>
      </div>
      {leaving.status === 'blocked' && (
        <Confirm
          title="Leave without this secret?"
          effect={`${label} is not shown again. If you have not stored it, you need another one.`}
          action="Leave"
          isBusy={false}
          error={null}
          onConfirm={leaving.proceed}
          onClose={leaving.reset}
        />
      )}
    </section>
  )
}

/** A text of code with a button that copies it. */
export const Copyable = ({ text }: { text: string }): ReactNode => (
  <div className="row copyable">
    <code>{text}</code>
    <CopyButton text={text} />
  </div>
)
