import { type ReactNode, useState } from 'react'
import type { Schemas } from '../../api/client.ts'
import type { UserRef } from '../../api/users.ts'
import { Button } from '../../ui/button.tsx'
import { CopyButton } from '../../ui/copy-button.tsx'
import { ShownOnce } from '../../ui/shown-once.tsx'
import { Failure } from '../../ui/states.tsx'
import { useCreateKey } from '../changes.ts'
import { useIdempotencyKey, useOneAtATime } from '../../api/submission.ts'
import { type Language, languages, writeExample } from './examples.ts'

/** Creates a key, and shows its secret once with a program that uses it. */
export function CreateKey({ user }: { user: UserRef }): ReactNode {
  const [label, setLabel] = useState('')
  const [idempotencyKey, renewKey] = useIdempotencyKey()
  const create = useCreateKey(user)
  const submit = useOneAtATime()
  return (
    <section className="card" aria-labelledby="create-key">
      <h2 id="create-key">Create a key</h2>
      <form
        className="row"
        onSubmit={(event) => {
          event.preventDefault()
          const key = { label: label.trim(), idempotencyKey }
          submit((onSettled) =>
            create.mutate(key, {
              onSuccess: () => {
                setLabel('')
                renewKey()
              },
              onSettled,
            }),
          )
        }}
      >
        <label>
          Name of the key (optional)
          <input
            maxLength={100}
            value={label}
            onChange={(event) => {
              setLabel(event.target.value)
              renewKey()
            }}
          />
        </label>
        <Button type="submit" kind="main" disabled={create.isPending}>
          {create.isPending ? 'Creating …' : 'Create a key'}
        </Button>
      </form>
      {create.error && <Failure error={create.error} />}
      {create.data && <Secret created={create.data} onDone={() => create.reset()} />}
    </section>
  )
}

interface SecretProps {
  readonly created: Schemas['CreatedKey']
  readonly onDone: () => void
}

function Secret({ created, onDone }: SecretProps): ReactNode {
  const [language, setLanguage] = useState<Language>('curl')
  const { apiKey, clientId } = created
  const example = writeExample(language, { origin: location.origin, clientId, apiKey })
  return (
    <ShownOnce label="The key" text={apiKey} onClose={onDone}>
      <div className="row">
        <label>
          A program that exchanges it for a signer token
          <select
            value={language}
            onChange={(event) =>
              setLanguage(languages.find((one) => one === event.target.value) ?? 'curl')
            }
          >
            {languages.map((one) => (
              <option key={one}>{one}</option>
            ))}
          </select>
        </label>
        <CopyButton key={language} text={example} name="the program" />
      </div>
      <pre className="program" tabIndex={0} role="region" aria-label={`Program in ${language}`}>
        {example}
      </pre>
      <p>
        The answer has the token, how long it is valid, what the user may spend, and the signer’s
        address. The signer takes the token, or the key itself, as{' '}
        <code>Authorization: Bearer</code>.
      </p>
    </ShownOnce>
  )
}
