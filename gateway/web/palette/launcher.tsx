import { useLocation } from '@tanstack/react-router'
import { type ReactNode, useEffect, useState } from 'react'
import { Palette } from './palette.tsx'
import { Shortcuts } from './shortcuts.tsx'

type Opened = 'palette' | 'shortcuts' | null

/** The button and the keys that open the palette and the list of shortcuts. */
export function Launcher(): ReactNode {
  const [opened, setOpened] = useState<Opened>(null)
  const address = useLocation({ select: ({ href }) => href })
  // Back and forward leave the view that the palette was opened for.
  useEffect(() => setOpened(null), [address])
  useEffect(() => {
    const onKeyDown = (event: KeyboardEvent): void => {
      if (!isPaletteKey(event)) return
      event.preventDefault()
      // A dialog that asks something comes first.
      setOpened((earlier) => (isDialogOpen() ? earlier : 'palette'))
    }
    document.addEventListener('keydown', onKeyDown)
    return () => document.removeEventListener('keydown', onKeyDown)
  }, [])
  const close = (): void => setOpened(null)
  return (
    <>
      <button
        type="button"
        className="button open-palette"
        aria-keyshortcuts="Control+K Meta+K"
        onClick={() => setOpened('palette')}
      >
        Go to … <kbd>Ctrl K</kbd>
      </button>
      {opened === 'palette' && (
        <Palette onClose={close} onShortcuts={() => setOpened('shortcuts')} />
      )}
      {opened === 'shortcuts' && <Shortcuts onClose={close} />}
    </>
  )
}

const isDialogOpen = (): boolean => document.querySelector('dialog[open]') !== null

const isPaletteKey = ({ key, ctrlKey, metaKey, altKey, shiftKey }: KeyboardEvent): boolean =>
  key.toLowerCase() === 'k' && (ctrlKey || metaKey) && !altKey && !shiftKey
