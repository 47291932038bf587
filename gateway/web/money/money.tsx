import { useQuery } from '@tanstack/react-query'
import { useNavigate, useParams, useSearch } from '@tanstack/react-router'
import { type ReactNode, useState } from 'react'
import { type Payer, type Processor, processorQuery, walletQuery } from '../api/money.ts'
import { useRights } from '../api/rights.ts'
import { Answer } from '../ui/answer.tsx'
import { Button } from '../ui/button.tsx'
import { Page } from '../ui/page.tsx'
import { Empty } from '../ui/states.tsx'
import { Account } from './account.tsx'
import { Ceiling } from './ceiling.tsx'
import { Connection } from './connection.tsx'
import { Statements } from './statements.tsx'
import { Transactions } from './transactions.tsx'

/** What a payer has and owes, how it is collected, and where the money goes. */
export function Money(): ReactNode {
  const { clientId } = useParams({ from: '/$clientId/money' })
  const { user: externalUserId } = useSearch({ from: '/$clientId/money' })
  const { canEdit, canOwn } = useRights(clientId)
  const processor = useQuery(processorQuery(clientId))
  return (
    <Page title="Money" about="Who pays, what is left, and what is collected.">
      <Answer query={processor} rows={6}>
        {(data) => (
          <>
            <Connection processor={data} canOwn={canOwn} />
            {data.billingMode === 'merchant' && (
              <UserFilter key={externalUserId ?? ''} externalUserId={externalUserId ?? ''} />
            )}
            <PaidBy processor={data} payer={{ clientId, externalUserId }} canEdit={canEdit} />
            <Ceiling clientId={clientId} canEdit={canEdit} />
            <Statements clientId={clientId} />
          </>
        )}
      </Answer>
    </Page>
  )
}

function UserFilter({ externalUserId }: { externalUserId: string }): ReactNode {
  const navigate = useNavigate({ from: '/$clientId/money' })
  const [text, setText] = useState(externalUserId)
  const show = (user: string): void => void navigate({ search: user === '' ? {} : { user } })
  return (
    <form
      className="row"
      onSubmit={(event) => {
        event.preventDefault()
        show(text)
      }}
    >
      <label>
        User (external id)
        <input
          type="search"
          required
          maxLength={200}
          value={text}
          onChange={(event) => setText(event.target.value)}
        />
      </label>
      <Button type="submit">Show</Button>
    </form>
  )
}

interface PaidByProps {
  readonly processor: Processor
  readonly payer: Payer
  readonly canEdit: boolean
}

function PaidBy({ processor, payer, canEdit }: PaidByProps): ReactNode {
  const isOfUsers = processor.billingMode === 'merchant'
  if (processor.isPlatformOwned || (isOfUsers && payer.externalUserId === undefined))
    return (
      <section className="card" aria-label="Payer">
        <Empty>
          {processor.isPlatformOwned
            ? 'The platform pays for this app, so it has no wallet.'
            : 'Users pay this app. Show one of them to see what it has and owes.'}
        </Empty>
      </section>
    )
  return <PayerMoney key={payer.externalUserId} payer={payer} canEdit={canEdit} />
}

function PayerMoney({ payer, canEdit }: Omit<PaidByProps, 'processor'>): ReactNode {
  const wallet = useQuery(walletQuery(payer))
  return (
    <>
      <Answer query={wallet} rows={6}>
        {(data) => <Account payer={payer} wallet={data} canEdit={canEdit} />}
      </Answer>
      <Transactions payer={payer} />
    </>
  )
}
