import type { ReactNode } from 'react'
import { useModal } from '../ui/focus/focus.ts'

interface ModalProps {
  readonly label: string
  readonly className?: string
  readonly children: ReactNode
  readonly onClose: () => void
}

/**
 * A dialog over the view. It keeps the focus inside; Escape and a click outside close it. Afterwards
 * the focus returns to the element that had it.
 */
export function Modal({ label, className, children, onClose }: ModalProps): ReactNode {
  const dialog = useModal()
  return (
    <dialog
      ref={dialog}
      aria-label={label}
      className={className}
      onClose={onClose}
      onClick={({ target }) => {
        if (target === dialog.current) dialog.current?.close()
      }}
    >
      {children}
    </dialog>
  )
}
