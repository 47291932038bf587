import type { ReactNode } from 'react'
import { Button } from './button.tsx'
import { CopyButton } from './copy-button.tsx'

interface ShownOnceProps {
  /** What the text is, such as “Client secret”. */
  readonly label: string
  readonly text: string
  readonly children?: ReactNode
  readonly onClose: () => void
}

/** A new secret, which the service never shows again, with a button that copies it. */
export const ShownOnce = ({ label, text, children, onClose }: ShownOnceProps): ReactNode => (
  <section className="notice" aria-label={label} role="status">
    <h2>{label}</h2>
    <p>Store it now. It is not shown again.</p>
    <Copyable text={text} />
    {children}
    <div className="row">
      <Button onClick={onClose}>I have stored it</Button>
    </div>
  </section>
)

/** A text of code with a button that copies it. */
export const Copyable = ({ text }: { text: string }): ReactNode => (
  <div className="row copyable">
    <code>{text}</code>
    <CopyButton text={text} />
  </div>
)
