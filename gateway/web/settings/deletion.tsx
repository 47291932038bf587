import { useNavigate } from '@tanstack/react-router'
import { type ReactNode, useState } from 'react'
import type { Schemas } from '../api/client.ts'
import { useDeleteApp } from '../api/settings.ts'
import { Button } from '../ui/button.tsx'
import { Confirm } from '../ui/confirm.tsx'

/** Deletes the app, after its client id was typed. Only owners may. */
export function Deletion({ app }: { app: Schemas['App'] }): ReactNode {
  const navigate = useNavigate()
  const [isAsked, setIsAsked] = useState(false)
  const remove = useDeleteApp(app.clientId)
  return (
    <section className="card" aria-labelledby="deletion">
      <h2 id="deletion">Delete the app</h2>
      <p>
        Its clients, keys, sessions and tokens end at once, and users can make no more calls. Its
        tickets, its ledger and its audit log stay in the books.
      </p>
      <div className="row">
        <Button kind="danger" onClick={() => setIsAsked(true)}>
          Delete the app
        </Button>
      </div>
      {isAsked && (
        <Confirm
          title={`Delete ${app.name}?`}
          effect="Every call for its users is refused from now on, and the team cannot open it any more. This cannot be undone."
          action="Delete the app"
          typed={app.clientId}
          isBusy={remove.isPending}
          error={remove.error}
          onConfirm={() =>
            remove.mutate(undefined, { onSuccess: () => void navigate({ to: '/' }) })
          }
          onClose={() => {
            setIsAsked(false)
            remove.reset()
          }}
        />
      )}
    </section>
  )
}
