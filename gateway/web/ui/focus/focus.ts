import { type RefObject, useLayoutEffect, useRef } from 'react'

/**
 * Opens a dialog over the view while its element is in the document. Afterwards the focus returns to
 * the element that had it, or to the title of the view if that element is gone.
 */
export function useModal(): RefObject<HTMLDialogElement | null> {
  const dialog = useRef<HTMLDialogElement>(null)
  useLayoutEffect(() => {
    const earlier = document.activeElement
    if (dialog.current?.open === false) dialog.current.showModal()
    return () => {
      // Elements behind an open dialog take no focus, and React removes it after this function.
      queueMicrotask(() => {
        if (!isFocusLost()) return
        if (earlier instanceof HTMLElement && earlier.isConnected) earlier.focus()
        if (isFocusLost()) focusTitle()
      })
    }
  }, [])
  return dialog
}

/** Whether keys would begin at the top of the document. */
const isFocusLost = (): boolean =>
  document.activeElement === null || document.activeElement === document.body

/** Moves the focus to the title of the view, which screen readers then read. */
export function focusTitle(): void {
  const title = document.querySelector<HTMLElement>('main h1')
  title?.focus({ preventScroll: true })
}
