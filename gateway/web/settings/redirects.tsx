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

const areStored = (...edited: readonly (string | undefined)[]): boolean =>
  edited.every((text) => text === undefined)

/** Addresses to which logins may lead back. */
export function Redirects({ app, canEdit }: { app: Schemas['App']; canEdit: boolean }): ReactNode {
  /** Undefined until it is changed. Only changed lists are sent, so that another member's changes stay. */
  const [login, setLogin] = useState<string>()
  const [logout, setLogout] = useState<string>()
  const update = useUpdateApp(app.clientId)
  const forget = (): void => {
    // Keeps what was typed since.
    setLogin((latest) => (latest === login ? undefined : latest))
    setLogout((latest) => (latest === logout ? undefined : latest))
  }
  const type = (set: (text: string) => void, text: string): void => {
    if (update.isSuccess) update.reset()
    set(text)
  }
  return (
    <section className="card" aria-labelledby="redirects">
      <h2 id="redirects">Redirect addresses</h2>
      <form
        className="stack"
        onSubmit={(event) => {
          event.preventDefault()
          const changed = {
            ...(login !== undefined && { redirectUris: toUris(login) }),
            ...(logout !== undefined && { postLogoutRedirectUris: toUris(logout) }),
          }
          update.mutate(changed, { onSuccess: forget })
        }}
      >
        <label>
          After a login, one in each line
          <textarea
            rows={3}
            value={login ?? lines(app.oidcClient?.redirectUris)}
            readOnly={!canEdit}
            onChange={(event) => type(setLogin, event.target.value)}
          />
        </label>
        <label>
          After a logout, one in each line
          <textarea
            rows={2}
            value={logout ?? lines(app.oidcClient?.postLogoutRedirectUris)}
            readOnly={!canEdit}
            onChange={(event) => type(setLogout, event.target.value)}
          />
        </label>
        <p className="soft">Addresses are compared as text, so each must be complete.</p>
        {update.error && <Failure error={update.error} />}
        {canEdit && (
          <Button
            type="submit"
            kind="main"
            disabled={update.isPending || (login ?? logout) === undefined}
          >
            {update.isPending ? 'Saving …' : 'Save addresses'}
          </Button>
        )}
        {update.isSuccess && areStored(login, logout) && <p role="status">Saved.</p>}
      </form>
    </section>
  )
}
