import { type ReactNode, useState } from 'react'
import { type Endpoint, type EndpointChange, useEndpointChanges } from '../api/webhooks.ts'
import { Button } from '../ui/button.tsx'
import { Failure } from '../ui/states.tsx'
import { EndpointFields } from './endpoint-fields.tsx'
import { EventTypes } from './event-types.tsx'

interface EditEndpointProps {
  readonly clientId: string
  readonly endpoint: Endpoint
  readonly onClose: () => void
}

/** Changes address, note and events. The secrets, the deliveries and the state stay. */
export function EditEndpoint({ clientId, endpoint, onClose }: EditEndpointProps): ReactNode {
  const [start] = useState(() => toFields(endpoint))
  const [fields, setFields] = useState(start)
  const { update } = useEndpointChanges(clientId, endpoint.id)
  const change = (changed: Partial<Fields>): void => setFields({ ...fields, ...changed })
  const changed = toChange(start, fields)
  const isChanged = Object.keys(changed).length > 0
  return (
    <form
      className="stack"
      aria-label="Edit the endpoint"
      onSubmit={(event) => {
        event.preventDefault()
        if (isChanged) update.mutate(changed, { onSuccess: onClose })
        else onClose()
      }}
    >
      <EndpointFields {...fields} onChange={change}>
        {fields.url.trim() !== start.url && (
          <p className="soft">Deliveries that wait are sent to the new address, too.</p>
        )}
      </EndpointFields>
      <EventTypes chosen={fields.eventTypes} onChange={(eventTypes) => change({ eventTypes })} />
      {update.error && <Failure error={update.error} />}
      <div className="row">
        <Button type="submit" kind="main" disabled={update.isPending}>
          {update.isPending ? 'Saving …' : 'Save'}
        </Button>
        <Button onClick={onClose} disabled={update.isPending}>
          Cancel
        </Button>
      </div>
    </form>
  )
}

type Fields = Required<EndpointChange>

const toFields = ({ url, description, eventTypes }: Endpoint): Fields => ({
  url,
  description,
  eventTypes,
})

/** Returns only what was changed, so that another member's change at the same time stays. */
function toChange(start: Fields, { url, description, eventTypes }: Fields): EndpointChange {
  const sorted = (types: Fields['eventTypes']): string => types.toSorted().join()
  return {
    ...(url.trim() !== start.url && { url: url.trim() }),
    ...(description !== start.description && { description }),
    ...(sorted(eventTypes) !== sorted(start.eventTypes) && { eventTypes }),
  }
}
