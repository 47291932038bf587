import { useQuery } from '@tanstack/react-query'
import { type ReactNode, useState } from 'react'
import { type TrustedIssuer, issuersQuery, useIssuerChanges } from '../api/settings.ts'
import { Answer } from '../ui/answer.tsx'
import { Button } from '../ui/button.tsx'
import { Confirm } from '../ui/confirm.tsx'
import { Empty } from '../ui/states.tsx'
import { IssuerForm } from './issuer-form.tsx'
import { TokenTester } from './token-tester.tsx'

interface IssuersProps {
  readonly clientId: string
  readonly canEdit: boolean
}

/** Identity providers of the app's own, whose tokens identify its users. */
export function Issuers({ clientId, canEdit }: IssuersProps): ReactNode {
  const issuers = useQuery(issuersQuery(clientId))
  const [removed, setRemoved] = useState<TrustedIssuer>()
  const [editedId, setEditedId] = useState<string>()
  const edited = issuers.data?.issuers.find(({ id }) => id === editedId)
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
                      {issuer.userPrefix !== '' && ` after ${issuer.userPrefix}`}
                      {issuer.clientClaim !== null &&
                        `, ${issuer.clientClaim} ${issuer.clientValues.join(' or ')}`}
                      {issuer.audiences.length > 0 && `, audiences ${issuer.audiences.join(', ')}`}
                    </small>
                  </div>
                  {canEdit && (
                    <Button
                      isSmall
                      aria-label={`Edit ${issuer.issuer}`}
                      onClick={() => setEditedId(issuer.id)}
                    >
                      Edit
                    </Button>
                  )}
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
      {edited && (
        <EditIssuer
          key={edited.id}
          clientId={clientId}
          issuer={edited}
          onClose={() => setEditedId(undefined)}
        />
      )}
      {canEdit && (
        <>
          {!edited && <NewIssuer clientId={clientId} />}
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
  const { add } = useIssuerChanges(clientId)
  return (
    <IssuerForm
      name="Trust a provider"
      action="Trust"
      isBusy={add.isPending}
      error={add.error}
      onSubmit={(rules, onSuccess) => add.mutate(rules, { onSuccess })}
    />
  )
}

interface EditIssuerProps {
  readonly clientId: string
  readonly issuer: TrustedIssuer
  readonly onClose: () => void
}

function EditIssuer({ clientId, issuer, onClose }: EditIssuerProps): ReactNode {
  const { replace } = useIssuerChanges(clientId)
  return (
    <>
      <p className="soft">Sessions that came from it end, and its users log in again.</p>
      <IssuerForm
        name={`Rules of ${issuer.issuer}`}
        start={issuer}
        action="Replace the rules"
        isBusy={replace.isPending}
        error={replace.error}
        onSubmit={(body) => replace.mutate({ issuerId: issuer.id, body }, { onSuccess: onClose })}
        onCancel={onClose}
      />
    </>
  )
}
