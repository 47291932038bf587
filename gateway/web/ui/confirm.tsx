import { type ReactNode, useState } from 'react'
import { Button } from './button.tsx'
import { useModal } from './focus/focus.ts'
import { Failure } from './states.tsx'

interface ConfirmProps {
  readonly title: string
  /** What the act does, and whether it can be undone. */
  readonly effect: ReactNode
  readonly action: string
  /** What the person must type before the act, for acts that cannot be undone. */
  readonly typed?: string
  readonly isBusy: boolean
  readonly error: Error | null
  readonly onConfirm: () => void
  readonly onClose: () => void
}

/**
 * Asks before an act that takes something away. Escape and Cancel change nothing; while the act runs
 * they are ignored, so that its result is seen.
 */
export function Confirm(props: ConfirmProps): ReactNode {
  const { title, effect, action, typed, isBusy, error, onConfirm, onClose } = props
  const [text, setText] = useState('')
  const dialog = useModal()
  return (
    <dialog
      ref={dialog}
      aria-labelledby="confirm-title"
      onCancel={(event) => {
        if (isBusy) event.preventDefault()
      }}
      onClose={onClose}
    >
      <form
        onSubmit={(event) => {
          event.preventDefault()
          onConfirm()
        }}
      >
        <h2 id="confirm-title">{title}</h2>
        <p>{effect}</p>
        {typed !== undefined && (
          <label>
            Type {typed} to confirm
            <input
              value={text}
              autoComplete="off"
              spellCheck={false}
              onChange={(event) => setText(event.target.value)}
            />
          </label>
        )}
        {error && <Failure error={error} />}
        <div className="row">
          <Button onClick={() => dialog.current?.close()} disabled={isBusy} autoFocus>
            Cancel
          </Button>
          <Button
            type="submit"
            kind="danger"
            disabled={isBusy || (typed !== undefined && text !== typed)}
          >
            {isBusy ? 'Working …' : action}
          </Button>
        </div>
      </form>
    </dialog>
  )
}
