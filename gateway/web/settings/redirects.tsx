import { type ReactNode, useState } from 'react'
import type { Schemas } from '../api/client.ts'
import { useUpdateApp } from '../api/settings.ts'
import { Button } from '../ui/button.tsx'
import { Failure } from '../ui/states.tsx'

const lines = (uris: readonly string[] | undefined): string => (uris ?? []).join('\n')
const toUris = (text: string): string[] =>
  text
    .split('\n')
    .map((line) => line.trim())
    .filter((line) => line !== '')

/** Addresses to which logins may lead back. */
export function Redirects({ app, canEdit }: { app: Schemas['App']; canEdit: boolean }): ReactNode {
  const [login, setLogin] = useState(lines(app.oidcClient?.redirectUris))
  const [logout, setLogout] = useState(lines(app.oidcClient?.postLogoutRedirectUris))
  const update = useUpdateApp(app.clientId)
  return (
    <section className="card" aria-labelledby="redirects">
      <h2 id="redirects">Redirect addresses</h2>
      <form
        className="stack"
        onSubmit={(event) => {
          event.preventDefault()
          update.mutate({ redirectUris: toUris(login), postLogoutRedirectUris: toUris(logout) })
        }}
      >
        <label>
          After a login, one in each line
          <textarea
            rows={3}
            value={login}
            readOnly={!canEdit}
            onChange={(event) => setLogin(event.target.value)}
          />
        </label>
        <label>
          After a logout, one in each line
          <textarea
            rows={2}
            value={logout}
            readOnly={!canEdit}
            onChange={(event) => setLogout(event.target.value)}
          />
        </label>
        <p className="soft">Addresses are compared as text, so each must be complete.</p>
        {update.error && <Failure error={update.error} />}
        {canEdit && (
          <Button type="submit" kind="main" disabled={update.isPending}>
            {update.isPending ? 'Saving …' : 'Save addresses'}
          </Button>
        )}
        {update.isSuccess && <p role="status">Saved.</p>}
      </form>
    </section>
  )
}
