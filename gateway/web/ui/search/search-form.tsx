import { type ReactNode, useState } from 'react'
import { Button } from '../button.tsx'

interface SearchFormProps {
  readonly label: string
  /** The text that the view is filtered by; empty for none. */
  readonly value: string
  readonly placeholder?: string
  readonly action?: string
  /** Label of the button that ends the filter; without it, an empty text does. */
  readonly clear?: string
  readonly onSearch: (text: string) => void
}

/** A text that the address keeps as filter of the view. It follows the address, and keeps the focus. */
export function SearchForm(props: SearchFormProps): ReactNode {
  const { label, value, placeholder, action = 'Show', clear, onSearch } = props
  const [text, setText] = useState(value)
  const [shown, setShown] = useState(value)
  if (shown !== value) {
    setShown(value)
    setText(value)
  }
  return (
    <form
      className="row"
      role="search"
      onSubmit={(event) => {
        event.preventDefault()
        onSearch(text.trim())
      }}
    >
      <label>
        {label}
        <input
          type="search"
          maxLength={200}
          autoComplete="off"
          spellCheck={false}
          value={text}
          placeholder={placeholder}
          onChange={(event) => setText(event.target.value)}
        />
      </label>
      <Button type="submit">{action}</Button>
      {clear !== undefined && value !== '' && <Button onClick={() => onSearch('')}>{clear}</Button>}
    </form>
  )
}
