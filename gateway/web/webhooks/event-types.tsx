import type { ReactNode } from 'react'
import { type EventType, eventTypes } from '../../../proto/events.ts'

interface EventTypesProps {
  readonly chosen: readonly EventType[]
  readonly onChange: (chosen: EventType[]) => void
}

/** The types of events that an endpoint receives. */
export const EventTypes = ({ chosen, onChange }: EventTypesProps): ReactNode => (
  <details>
    <summary>Events: {chosen.length === 0 ? 'all' : `${chosen.length} types`}</summary>
    <fieldset className="choices">
      <legend className="soft">Without a choice the endpoint receives every type.</legend>
      {eventTypes.map((type) => (
        <label key={type} className="choice">
          <input
            type="checkbox"
            checked={chosen.includes(type)}
            onChange={({ target }) =>
              onChange(
                target.checked ? [...chosen, type] : chosen.filter((other) => other !== type),
              )
            }
          />
          {type}
        </label>
      ))}
    </fieldset>
  </details>
)
