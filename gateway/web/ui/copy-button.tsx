import { type ReactNode, useState } from 'react'
import { Button } from './button.tsx'

interface CopyButtonProps {
  readonly text: string
  /** The name of the text, if a view has several, such as “the key”. */
  readonly name?: string
}

/** Copies a text, and shows whether that worked. Browsers allow it only under https or localhost. */
export function CopyButton({ text, name = '' }: CopyButtonProps): ReactNode {
  const [state, setState] = useState<'idle' | 'copied' | 'failed'>('idle')
  const copy = async (): Promise<void> => {
    try {
      await navigator.clipboard.writeText(text)
      setState('copied')
    } catch {
      setState('failed')
    }
  }
  const verb = state === 'copied' ? 'Copied' : 'Copy'
  return (
    <>
      <Button isSmall aria-label={`${verb} ${name}`.trim()} onClick={() => void copy()}>
        {verb}
      </Button>
      {state === 'failed' && <small>The browser does not allow it. Select the text instead.</small>}
    </>
  )
}
