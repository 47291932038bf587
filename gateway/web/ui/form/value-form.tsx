import type { UseMutationResult } from '@tanstack/react-query'
import { type ReactNode, useState } from 'react'
import { Button } from '../button.tsx'
import { Failure } from '../states.tsx'

interface ValueFormProps<Value, Output> {
  readonly label: string
  /** The stored value as text. The field follows it until it is edited. */
  readonly present: string
  /** Returns null for a text that cannot be stored. */
  readonly parse: (text: string) => Value | null
  /** Shown for a text that cannot be parsed. */
  readonly hint: string
  /** Name of the button, if a view has several forms. Default is Save. */
  readonly action?: string
  readonly change: UseMutationResult<Output, Error, Value>
  /** Stores another value at once, such as the deployment's. */
  readonly reset?: { readonly label: string; readonly value: Value } | undefined
}

/** Changes one value: parses it, stores it, and shows the result. */
export function ValueForm<Value, Output>(props: ValueFormProps<Value, Output>): ReactNode {
  const { label, present, parse, hint, action = 'Save', change, reset } = props
  const [edited, setEdited] = useState<string | null>(null)
  const text = edited ?? present
  const value = parse(text.trim())
  const store = (stored: Value): void =>
    change.mutate(stored, {
      // Keeps what was typed since.
      onSuccess: () => setEdited((latest) => (latest === edited ? null : latest)),
    })
  return (
    <>
      <form
        className="row"
        onSubmit={(event) => {
          event.preventDefault()
          if (value !== null) store(value)
        }}
      >
        <label>
          {label}
          <input
            inputMode="decimal"
            required
            maxLength={20}
            value={text}
            onChange={(event) => {
              setEdited(event.target.value)
              if (change.isSuccess) change.reset()
            }}
          />
        </label>
        <Button type="submit" disabled={value === null || change.isPending}>
          {change.isPending ? 'Saving …' : action}
        </Button>
        {reset && (
          <Button disabled={change.isPending} onClick={() => store(reset.value)}>
            {reset.label}
          </Button>
        )}
      </form>
      {value === null && text !== '' && <p role="status">{hint}</p>}
      {change.error && <Failure error={change.error} />}
      {change.isSuccess && edited === null && <p role="status">Saved.</p>}
    </>
  )
}
