import type { ReactNode } from 'react'
import type { Draft } from './draft.ts'

interface TermFieldsProps {
  readonly draft: Draft
  readonly onChange: (changed: Partial<Draft>) => void
}

const types: Readonly<Record<Draft['type'], string>> = {
  usage: 'usage: users pay for what they use',
  subscription: 'subscription: users pay for each period',
  free: 'free',
}
const typeNames = ['usage', 'subscription', 'free'] as const
const cycles = ['monthly', 'weekly', 'daily'] as const
const statuses = ['active', 'inactive'] as const

/** The fields of a plan's terms. Those that a type does not have are not shown. */
export const TermFields = ({ draft, onChange }: TermFieldsProps): ReactNode => (
  <div className="fields">
    <label>
      Name
      <input
        required
        maxLength={64}
        value={draft.name}
        onChange={(event) => onChange({ name: event.target.value })}
      />
    </label>
    <label>
      Type
      <Choice
        values={typeNames}
        names={types}
        value={draft.type}
        onChange={(type) => onChange({ type })}
      />
    </label>
    <label>
      Period
      <Choice
        values={cycles}
        value={draft.billingCycle}
        onChange={(billingCycle) => onChange({ billingCycle })}
      />
    </label>
    {draft.type !== 'free' && (
      <Amount
        label="Price of a period, in dollars"
        value={draft.price}
        onChange={(price) => onChange({ price })}
      />
    )}
    <Amount
      label="Included usage, in dollars (none when empty)"
      value={draft.included}
      onChange={(included) => onChange({ included })}
    />
    <Amount
      label="Usage costs, in % of the network price (100 when empty)"
      value={draft.percent}
      onChange={(percent) => onChange({ percent })}
    />
    {draft.type === 'usage' && (
      <Amount
        label="Charge after this usage, in dollars (at the period's end when empty)"
        value={draft.threshold}
        onChange={(threshold) => onChange({ threshold })}
      />
    )}
    {draft.type === 'subscription' && (
      <>
        <Amount
          label="Included units"
          value={draft.includedUnits}
          onChange={(includedUnits) => onChange({ includedUnits })}
        />
        <Amount
          label="Price of a further unit, in wei"
          value={draft.overageWei}
          onChange={(overageWei) => onChange({ overageWei })}
        />
      </>
    )}
    <label>
      State
      <Choice values={statuses} value={draft.status} onChange={(status) => onChange({ status })} />
    </label>
  </div>
)

interface AmountProps {
  readonly label: string
  readonly value: string
  readonly onChange: (value: string) => void
}

const Amount = ({ label, value, onChange }: AmountProps): ReactNode => (
  <label>
    {label}
    <input
      inputMode="decimal"
      maxLength={30}
      value={value}
      onChange={(event) => onChange(event.target.value)}
    />
  </label>
)

interface ChoiceProps<Value extends string> {
  readonly values: readonly Value[]
  readonly names?: Readonly<Record<Value, string>>
  readonly value: Value
  readonly onChange: (value: Value) => void
}

function Choice<Value extends string>(props: ChoiceProps<Value>): ReactNode {
  const { values, names, value, onChange } = props
  return (
    <select
      value={value}
      onChange={({ target }) => {
        const chosen = values.find((one) => one === target.value)
        if (chosen !== undefined) onChange(chosen)
      }}
    >
      {values.map((one) => (
        <option key={one} value={one}>
          {names?.[one] ?? one}
        </option>
      ))}
    </select>
  )
}
