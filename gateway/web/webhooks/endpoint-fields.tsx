import type { ReactNode } from 'react'

interface EndpointFieldsProps {
  readonly url: string
  readonly description: string
  readonly onChange: (changed: { readonly url: string } | { readonly description: string }) => void
  /** What the reader must know of the address. */
  readonly children?: ReactNode
}

/** Address and note of an endpoint. */
export const EndpointFields = (props: EndpointFieldsProps): ReactNode => (
  <>
    <label>
      Address
      <input
        type="url"
        required
        maxLength={2000}
        placeholder="https://example.com/webhooks"
        value={props.url}
        onChange={(event) => props.onChange({ url: event.target.value })}
      />
    </label>
    {props.children}
    <label>
      Note (optional)
      <input
        maxLength={200}
        value={props.description}
        onChange={(event) => props.onChange({ description: event.target.value })}
      />
    </label>
  </>
)
