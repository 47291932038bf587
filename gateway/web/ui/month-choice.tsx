import type { ReactNode } from 'react'

export const presentMonth = (): string => new Date().toISOString().slice(0, 7)

interface MonthChoiceProps {
  readonly month: string
  readonly onChange: (month: string) => void
}

/** Chooses a UTC month, such as `2026-03`, up to the present one. */
export const MonthChoice = ({ month, onChange }: MonthChoiceProps): ReactNode => (
  <label>
    Month (UTC)
    <input
      type="month"
      required
      pattern="\d{4}-\d{2}"
      value={month}
      max={presentMonth()}
      onChange={(event) => {
        if (event.target.value !== '') onChange(event.target.value)
      }}
    />
  </label>
)
