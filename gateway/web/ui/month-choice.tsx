import { type ReactNode, useState } from 'react'
import { Button } from './button.tsx'

/** The UTC month of an instant in Unix milliseconds. */
export const formatUtcMonth = (at: number): string => new Date(at).toISOString().slice(0, 7)

interface MonthChoiceProps {
  readonly month: string
  /** The last month to choose: the present one by the app's clock, if the view knows it. */
  readonly latest?: string
  readonly onChange: (month: string) => void
}

/** Chooses a UTC month, such as `2026-03`. */
export function MonthChoice({ month, latest, onChange }: MonthChoiceProps): ReactNode {
  const [draft, setDraft] = useState({ month, text: month })
  // Once the address has another month, the text is outdated.
  const text = draft.month === month ? draft.text : month
  return (
    <form
      className="row"
      onSubmit={(event) => {
        event.preventDefault()
        setDraft({ month: text, text })
        onChange(text)
      }}
    >
      <label>
        Month (UTC)
        <input
          type="month"
          required
          // Browsers without a picker for months show a text field.
          pattern="\d{4}-(0[1-9]|1[0-2])"
          placeholder="2026-10"
          value={text}
          max={latest}
          onChange={(event) => setDraft({ month, text: event.target.value })}
        />
      </label>
      <Button type="submit">Show</Button>
    </form>
  )
}
