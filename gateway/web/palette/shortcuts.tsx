import type { ReactNode } from 'react'
import { Button } from '../ui/button.tsx'
import { Modal } from './modal.tsx'

const shortcuts: readonly (readonly [keys: readonly string[], effect: string])[] = [
  [['Ctrl K', '⌘ K'], 'Open the command palette'],
  [['?'], 'Show these shortcuts, in the empty palette'],
  [['↑', '↓', 'Page ↑', 'Page ↓'], 'Move in the palette'],
  [['Enter'], 'Run the chosen command'],
  [['Esc'], 'Close the palette or a dialog'],
  [['1 … 8'], 'Choose a range, while its picker has the focus'],
  [['C'], 'Ask for days, while the picker of the range has the focus'],
]

/** All keyboard shortcuts. */
export const Shortcuts = ({ onClose }: { onClose: () => void }): ReactNode => (
  <Modal label="Keyboard shortcuts" onClose={onClose}>
    <h2>Keyboard shortcuts</h2>
    <dl className="keys">
      {shortcuts.map(([keys, effect]) => (
        <div key={effect} className="shortcut">
          <dt>
            {keys.map((key) => (
              <kbd key={key}>{key}</kbd>
            ))}
          </dt>
          <dd>{effect}</dd>
        </div>
      ))}
    </dl>
    <Button autoFocus onClick={onClose}>
      Close
    </Button>
  </Modal>
)
