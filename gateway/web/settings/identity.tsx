import { type ReactNode, useState } from 'react'
import type { Schemas } from '../api/client.ts'
import { useUpdateApp } from '../api/settings.ts'
import { Button } from '../ui/button.tsx'
import { Failure } from '../ui/states.tsx'

/** The fields that a person has changed. Only they are sent, so that another member's changes stay. */
interface Typed {
  readonly name?: string
  readonly developerName?: string
  readonly websiteUrl?: string
}

/** What people see of the app. */
export function Identity({ app, canEdit }: { app: Schemas['App']; canEdit: boolean }): ReactNode {
  const [typed, setTyped] = useState<Typed>({})
  const update = useUpdateApp(app.clientId)
  const { developerName, websiteUrl } = app
  const shown = { name: app.name, developerName, websiteUrl, ...typed }
  const type = (field: keyof Typed, text: string): void => {
    if (update.isSuccess) update.reset()
    setTyped({ ...typed, [field]: text })
  }
  return (
    <section className="card" aria-labelledby="identity">
      <h2 id="identity">App</h2>
      <form
        className="stack"
        onSubmit={(event) => {
          event.preventDefault()
          update.mutate(typed, {
            // Keeps what was typed since.
            onSuccess: () => setTyped((latest) => (latest === typed ? {} : latest)),
          })
        }}
      >
        <label>
          Name
          <input
            required
            maxLength={200}
            value={shown.name}
            readOnly={!canEdit}
            onChange={(event) => type('name', event.target.value)}
          />
        </label>
        <label>
          Developer
          <input
            maxLength={200}
            value={shown.developerName ?? ''}
            readOnly={!canEdit}
            onChange={(event) => type('developerName', event.target.value)}
          />
        </label>
        <label>
          Website
          <input
            type="url"
            maxLength={2000}
            value={shown.websiteUrl ?? ''}
            readOnly={!canEdit}
            onChange={(event) => type('websiteUrl', event.target.value)}
          />
        </label>
        {update.error && <Failure error={update.error} />}
        {canEdit && (
          <Button
            type="submit"
            kind="main"
            disabled={update.isPending || Object.keys(typed).length === 0}
          >
            {update.isPending ? 'Saving …' : 'Save'}
          </Button>
        )}
        {update.isSuccess && Object.keys(typed).length === 0 && <p role="status">Saved.</p>}
      </form>
    </section>
  )
}
