import { type ReactNode, useState } from 'react'
import { Button } from './button.tsx'

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
export function Copyable({ text }: { text: string }): ReactNode {
  const [state, setState] = useState<'idle' | 'copied' | 'failed'>('idle')
  const copy = (): void =>
    void navigator.clipboard.writeText(text).then(
      () => setState('copied'),
      () => setState('failed'),
    )
  return (
    <div className="row copyable">
      <code>{text}</code>
      <Button isSmall onClick={copy}>
        {state === 'copied' ? 'Copied' : 'Copy'}
      </Button>
      {state === 'failed' && <small>The browser does not allow it. Select the text instead.</small>}
    </div>
  )
}
