import { useQuery } from '@tanstack/react-query'
import { type ReactNode, useState } from 'react'
import { type TrustedIssuer, issuersQuery, useIssuerChanges } from '../api/settings.ts'
import { Answer } from '../ui/answer.tsx'
import { Button } from '../ui/button.tsx'
import { Confirm } from '../ui/confirm.tsx'
import { Empty, Failure } from '../ui/states.tsx'
import { TokenTester } from './token-tester.tsx'

interface IssuersProps {
  readonly clientId: string
  readonly canEdit: boolean
}

/** Identity providers of the app's own, whose tokens identify its users. */
export function Issuers({ clientId, canEdit }: IssuersProps): ReactNode {
  const issuers = useQuery(issuersQuery(clientId))
  const [removed, setRemoved] = useState<TrustedIssuer>()
  const { remove } = useIssuerChanges(clientId)
  const close = (): void => {
    setRemoved(undefined)
    remove.reset()
  }
  return (
    <section className="card" aria-labelledby="issuers">
      <h2 id="issuers">Identity providers</h2>
      <Answer query={issuers} rows={2}>
        {(data) =>
          data.issuers.length === 0 ? (
            <Empty>No provider of your own is trusted. Users come from your backend.</Empty>
          ) : (
            <ul className="list">
              {data.issuers.map((issuer) => (
                <li key={issuer.id} className="row">
                  <div>
                    <code>{issuer.issuer}</code>
                    <small className="soft">
                      {' '}
                      users by {issuer.userClaim}
                      {issuer.audiences.length > 0 && `, audiences ${issuer.audiences.join(', ')}`}
                    </small>
                  </div>
                  {canEdit && (
                    <Button
                      isSmall
                      aria-label={`Stop trusting ${issuer.issuer}`}
                      onClick={() => setRemoved(issuer)}
                    >
                      Stop trusting
                    </Button>
                  )}
                </li>
              ))}
            </ul>
          )
        }
      </Answer>
      {canEdit && (
        <>
          <NewIssuer clientId={clientId} />
          <TokenTester clientId={clientId} />
        </>
      )}
      {removed && (
        <Confirm
          title="Stop trusting this provider?"
          effect={`Tokens of ${removed.issuer} are refused, and sessions that came from them end.`}
          action="Stop trusting"
          isBusy={remove.isPending}
          error={remove.error}
          onConfirm={() => remove.mutate(removed.id, { onSuccess: close })}
          onClose={close}
        />
      )}
    </section>
  )
}

function NewIssuer({ clientId }: { clientId: string }): ReactNode {
  const [issuer, setIssuer] = useState('')
  const [audience, setAudience] = useState('')
  const [userClaim, setUserClaim] = useState('sub')
  const { add } = useIssuerChanges(clientId)
  return (
    <form
      className="row"
      onSubmit={(event) => {
        event.preventDefault()
        const audiences = audience.trim() === '' ? [] : [audience.trim()]
        add.mutate(
          { issuer: issuer.trim(), audiences, userClaim: userClaim.trim() },
          { onSuccess: () => setIssuer('') },
        )
      }}
    >
      <label>
        Issuer
        <input
          required
          maxLength={2000}
          placeholder="https://login.example"
          value={issuer}
          onChange={(event) => setIssuer(event.target.value)}
        />
      </label>
      <label>
        Audience (any when empty)
        <input
          maxLength={200}
          value={audience}
          onChange={(event) => setAudience(event.target.value)}
        />
      </label>
      <label>
        Claim with the user
        <input
          required
          maxLength={200}
          value={userClaim}
          onChange={(event) => setUserClaim(event.target.value)}
        />
      </label>
      <Button type="submit" disabled={add.isPending}>
        {add.isPending ? 'Reading its keys …' : 'Trust'}
      </Button>
      {add.error && <Failure error={add.error} />}
    </form>
  )
}
