import { type ReactNode, useState } from 'react'
import { Button } from '../button.tsx'

interface UserChoiceProps {
  /** The chosen user's external id; undefined for none. */
  readonly user: string | undefined
  readonly onChoose: (user: string | undefined) => void
}

/** Chooses one user by the whole external id, or none. Give it the user as key. */
export function UserChoice({ user, onChoose }: UserChoiceProps): ReactNode {
  const [text, setText] = useState(user ?? '')
  return (
    <form
      className="row"
      role="search"
      onSubmit={(event) => {
        event.preventDefault()
        onChoose(text.trim() || undefined)
      }}
    >
      <label>
        User (external id)
        <input
          type="search"
          maxLength={200}
          autoComplete="off"
          spellCheck={false}
          value={text}
          onChange={(event) => setText(event.target.value)}
        />
      </label>
      <Button type="submit">Show</Button>
    </form>
  )
}
