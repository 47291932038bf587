import { useQuery } from '@tanstack/react-query'
import { type ReactNode, useState } from 'react'
import { domainsQuery, useDomainChanges } from '../api/settings.ts'
import { Answer } from '../ui/answer.tsx'
import { Button } from '../ui/button.tsx'
import { Confirm } from '../ui/confirm.tsx'
import { Empty, Failure } from '../ui/states.tsx'

interface OriginsProps {
  readonly clientId: string
  readonly canEdit: boolean
}

/** Web pages from which browsers may call the API for the app. */
export function Origins({ clientId, canEdit }: OriginsProps): ReactNode {
  const domains = useQuery(domainsQuery(clientId))
  const [origin, setOrigin] = useState('')
  const [removed, setRemoved] = useState<{ id: string; origin: string }>()
  const { add, remove } = useDomainChanges(clientId)
  const close = (): void => {
    setRemoved(undefined)
    remove.reset()
  }
  return (
    <section className="card" aria-labelledby="origins">
      <h2 id="origins">Origins of browsers</h2>
      <Answer query={domains} rows={2}>
        {(data) =>
          data.domains.length === 0 ? (
            <Empty>No web page may call the API from a browser.</Empty>
          ) : (
            <ul className="list">
              {data.domains.map((domain) => (
                <li key={domain.id} className="row">
                  <code>{domain.origin}</code>
                  {canEdit && (
                    <Button
                      isSmall
                      aria-label={`Remove ${domain.origin}`}
                      onClick={() => setRemoved(domain)}
                    >
                      Remove
                    </Button>
                  )}
                </li>
              ))}
            </ul>
          )
        }
      </Answer>
      {canEdit && (
        <form
          className="row"
          onSubmit={(event) => {
            event.preventDefault()
            add.mutate(origin.trim(), { onSuccess: () => setOrigin('') })
          }}
        >
          <label>
            Origin
            <input
              required
              maxLength={300}
              placeholder="https://shop.example"
              value={origin}
              onChange={(event) => setOrigin(event.target.value)}
            />
          </label>
          <Button type="submit" disabled={add.isPending}>
            Add origin
          </Button>
        </form>
      )}
      {add.error && <Failure error={add.error} />}
      {removed && (
        <Confirm
          title="Remove this origin?"
          effect={`Within minutes browsers block calls from ${removed.origin}.`}
          action="Remove"
          isBusy={remove.isPending}
          error={remove.error}
          onConfirm={() => remove.mutate(removed.id, { onSuccess: close })}
          onClose={close}
        />
      )}
    </section>
  )
}
