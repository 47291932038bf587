import { type ReactNode, useState } from 'react'
import type { IssuerRules, TrustedIssuer } from '../api/settings.ts'
import { Button } from '../ui/button.tsx'
import { Failure } from '../ui/states.tsx'

interface IssuerFormProps {
  readonly name: string
  readonly start?: TrustedIssuer
  readonly action: string
  readonly isBusy: boolean
  readonly error: Error | null
  readonly onSubmit: (rules: IssuerRules, onSuccess: () => void) => void
  readonly onCancel?: () => void
}

/** The rules by which tokens of an identity provider name users of the app. */
export function IssuerForm(props: IssuerFormProps): ReactNode {
  const { name, start, action, isBusy, error, onSubmit, onCancel } = props
  const [fields, setFields] = useState(() => toFields(start))
  const edit = (changed: Partial<Fields>): void => setFields({ ...fields, ...changed })
  return (
    <form
      className="stack"
      aria-label={name}
      onSubmit={(event) => {
        event.preventDefault()
        onSubmit(toRules(fields, start), () => setFields(toFields(start)))
      }}
    >
      <label>
        Issuer
        <input
          required
          maxLength={2000}
          placeholder="https://login.example"
          value={fields.issuer}
          onChange={(event) => edit({ issuer: event.target.value })}
        />
      </label>
      <label>
        Audiences, one in each line
        <textarea
          rows={2}
          spellCheck={false}
          value={fields.audiences}
          onChange={(event) => edit({ audiences: event.target.value })}
        />
      </label>
      <label>
        Claim with the user
        <input
          required
          maxLength={200}
          value={fields.userClaim}
          onChange={(event) => edit({ userClaim: event.target.value })}
        />
      </label>
      <Further fields={fields} onEdit={edit} />
      {error && <Failure error={error} />}
      <div className="row">
        <Button type="submit" disabled={isBusy}>
          {isBusy ? 'Reading its keys …' : action}
        </Button>
        {onCancel && <Button onClick={onCancel}>Cancel</Button>}
      </div>
    </form>
  )
}

interface FurtherProps {
  readonly fields: Fields
  readonly onEdit: (changed: Partial<Fields>) => void
}

/** Rules that few providers need. */
const Further = ({ fields, onEdit }: FurtherProps): ReactNode => (
  <details>
    <summary>Further rules</summary>
    <div className="stack">
      <label>
        Claim with the client, such as azp
        <input
          maxLength={200}
          value={fields.clientClaim}
          onChange={(event) => onEdit({ clientClaim: event.target.value })}
        />
      </label>
      <label>
        Its values for this app, one in each line
        <textarea
          rows={2}
          spellCheck={false}
          value={fields.clientValues}
          onChange={(event) => onEdit({ clientValues: event.target.value })}
        />
      </label>
      <label>
        Prefix of its users’ external ids, which separates the users of two providers
        <input
          maxLength={50}
          value={fields.userPrefix}
          onChange={(event) => onEdit({ userPrefix: event.target.value })}
        />
      </label>
    </div>
  </details>
)

type Fields = Record<
  'issuer' | 'audiences' | 'userClaim' | 'clientClaim' | 'clientValues' | 'userPrefix',
  string
>

const empty: Fields = {
  issuer: '',
  audiences: '',
  userClaim: 'sub',
  clientClaim: '',
  clientValues: '',
  userPrefix: '',
}

const toFields = (issuer: TrustedIssuer | undefined): Fields =>
  issuer === undefined
    ? empty
    : {
        ...issuer,
        audiences: issuer.audiences.join('\n'),
        clientClaim: issuer.clientClaim ?? '',
        clientValues: issuer.clientValues.join('\n'),
      }

/** Keeps the address of the keys, which the form does not show. */
const toRules = (fields: Fields, start: TrustedIssuer | undefined): IssuerRules => ({
  issuer: fields.issuer.trim(),
  audiences: toLines(fields.audiences),
  userClaim: fields.userClaim.trim(),
  clientClaim: fields.clientClaim.trim() === '' ? null : fields.clientClaim.trim(),
  clientValues: toLines(fields.clientValues),
  userPrefix: fields.userPrefix,
  jwksUri: start?.jwksUri ?? null,
})

const toLines = (text: string): string[] =>
  text
    .split('\n')
    .map((line) => line.trim())
    .filter((line) => line !== '')
