import { type ReactNode, useState } from 'react'
import type { Schemas } from '../api/client.ts'
import { useUpdateApp } from '../api/settings.ts'
import { Button } from '../ui/button.tsx'
import { Failure } from '../ui/states.tsx'

/** What people see of the app. */
export function Identity({ app, canEdit }: { app: Schemas['App']; canEdit: boolean }): ReactNode {
  const [name, setName] = useState(app.name)
  const [developerName, setDeveloperName] = useState(app.developerName ?? '')
  const [websiteUrl, setWebsiteUrl] = useState(app.websiteUrl ?? '')
  const update = useUpdateApp(app.clientId)
  return (
    <section className="card" aria-labelledby="identity">
      <h2 id="identity">App</h2>
      <form
        className="stack"
        onSubmit={(event) => {
          event.preventDefault()
          update.mutate({ name, developerName, websiteUrl })
        }}
      >
        <label>
          Name
          <input
            required
            maxLength={200}
            value={name}
            readOnly={!canEdit}
            onChange={(event) => setName(event.target.value)}
          />
        </label>
        <label>
          Developer
          <input
            maxLength={200}
            value={developerName}
            readOnly={!canEdit}
            onChange={(event) => setDeveloperName(event.target.value)}
          />
        </label>
        <label>
          Website
          <input
            type="url"
            maxLength={2000}
            value={websiteUrl}
            readOnly={!canEdit}
            onChange={(event) => setWebsiteUrl(event.target.value)}
          />
        </label>
        {update.error && <Failure error={update.error} />}
        {canEdit && (
          <Button type="submit" kind="main" disabled={update.isPending}>
            {update.isPending ? 'Saving …' : 'Save'}
          </Button>
        )}
        {update.isSuccess && <p role="status">Saved.</p>}
      </form>
    </section>
  )
}
