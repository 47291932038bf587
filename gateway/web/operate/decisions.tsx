import { type ReactNode, useState } from 'react'
import { type QuarantinedEvent, useDecisions } from '../api/quarantine.ts'
import { Button } from '../ui/button.tsx'
import { Confirm } from '../ui/confirm.tsx'
import { Name } from '../ui/name.tsx'
import { Wei } from '../ui/amount.tsx'
import { isAttributable } from './reasons.ts'

/** What an operator may decide about an open event. */
export function Decisions({ event }: { event: QuarantinedEvent }): ReactNode {
  const { redrive, attribute, discard } = useDecisions(event.id)
  return (
    <>
      <Redrive event={event} redrive={redrive} />
      {isAttributable(event.reason) && <Attribution attribute={attribute} />}
      <Discard discard={discard} />
    </>
  )
}

type Decided = ReturnType<typeof useDecisions>

interface RedriveProps extends Pick<Decided, 'redrive'> {
  readonly event: QuarantinedEvent
}

function Redrive({ event, redrive }: RedriveProps): ReactNode {
  const [asked, setAsked] = useState<{ readonly underNewId: boolean } | null>(null)
  const ask = (underNewId: boolean): void => {
    if (redrive.isError) redrive.reset()
    setAsked({ underNewId })
  }
  const close = (): void => setAsked(null)
  return (
    <section className="card" aria-labelledby="again">
      <h2 id="again">Ingest it again</h2>
      <p className="soft">
        The event is read as if it arrived now. If it becomes a ticket, its user pays for it, once.
      </p>
      <div className="row">
        <Button kind="main" onClick={() => ask(false)}>
          Redrive
        </Button>
        {event.reason === 'same_id_other_bytes' && (
          <Button onClick={() => ask(true)}>Redrive under a new id</Button>
        )}
      </div>
      {asked && (
        <Confirm
          title={asked.underNewId ? 'Redrive this event under a new id?' : 'Redrive this event?'}
          effect={<Charge event={event} />}
          action="Redrive"
          isBusy={redrive.isPending}
          error={redrive.error}
          onConfirm={() => redrive.mutate(asked.underNewId, { onSuccess: close })}
          onClose={close}
        />
      )}
    </section>
  )
}

const Charge = ({ event: { authId, feeWei } }: { event: QuarantinedEvent }): ReactNode => (
  <>
    If it becomes a ticket, {authId ? <Name>{authId}</Name> : 'its user'} pays{' '}
    {feeWei === undefined ? 'its cost' : <Wei value={feeWei} />} for it, once. Otherwise it stays
    here. This cannot be undone.
  </>
)

function Attribution({ attribute }: Pick<Decided, 'attribute'>): ReactNode {
  const [clientId, setClientId] = useState('')
  const [externalUserId, setExternalUserId] = useState('')
  const [isAsked, setIsAsked] = useState(false)
  const user = { clientId: clientId.trim(), externalUserId: externalUserId.trim() }
  return (
    <section className="card" aria-labelledby="attribute">
      <h2 id="attribute">Assign it to a user</h2>
      <p className="soft">The user is created if new, and pays for the ticket.</p>
      <form
        className="row"
        onSubmit={(event) => {
          event.preventDefault()
          if (attribute.isError) attribute.reset()
          setIsAsked(true)
        }}
      >
        <label>
          Client id of the app
          <input
            required
            maxLength={100}
            placeholder="app_…"
            value={clientId}
            onChange={(event) => setClientId(event.target.value)}
          />
        </label>
        <label>
          User
          <input
            required
            maxLength={256}
            value={externalUserId}
            onChange={(event) => setExternalUserId(event.target.value)}
          />
        </label>
        <Button type="submit">Assign</Button>
      </form>
      {isAsked && (
        <Confirm
          title={`Assign this event to ${user.externalUserId}?`}
          effect={`${user.externalUserId} of the app ${user.clientId} pays for the ticket, and is created if new. This cannot be undone.`}
          action="Assign"
          isBusy={attribute.isPending}
          error={attribute.error}
          onConfirm={() => attribute.mutate(user, { onSuccess: () => setIsAsked(false) })}
          onClose={() => setIsAsked(false)}
        />
      )}
    </section>
  )
}

function Discard({ discard }: Pick<Decided, 'discard'>): ReactNode {
  const [reason, setReason] = useState('')
  const [isAsked, setIsAsked] = useState(false)
  return (
    <section className="card" aria-labelledby="discard">
      <h2 id="discard">Discard it</h2>
      <form
        className="row"
        onSubmit={(event) => {
          event.preventDefault()
          if (discard.isError) discard.reset()
          setIsAsked(true)
        }}
      >
        <label>
          Why it is no ticket
          <input
            required
            maxLength={500}
            value={reason}
            onChange={(event) => setReason(event.target.value)}
          />
        </label>
        <Button type="submit" kind="danger">
          Discard
        </Button>
      </form>
      {isAsked && (
        <Confirm
          title="Discard this event?"
          effect="It never becomes a ticket, and nobody pays for it. Its bytes, the reason and your name are kept. This cannot be undone."
          action="Discard"
          typed="discard"
          isBusy={discard.isPending}
          error={discard.error}
          onConfirm={() => discard.mutate(reason.trim(), { onSuccess: () => setIsAsked(false) })}
          onClose={() => setIsAsked(false)}
        />
      )}
    </section>
  )
}
