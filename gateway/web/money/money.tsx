import { useQuery } from '@tanstack/react-query'
import { Link, useNavigate, useParams, useSearch } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import {
  type Payer,
  type Processor,
  processorQuery,
  usePaidSince,
  walletQuery,
} from '../api/money.ts'
import { useRights } from '../api/rights.ts'
import { Answer } from '../ui/answer.tsx'
import { WalletCard } from '../ui/money/wallet-card.tsx'
import { Page } from '../ui/page.tsx'
import { SearchForm } from '../ui/search/search-form.tsx'
import { Empty } from '../ui/states.tsx'
import { Ceiling } from './ceiling.tsx'
import { Changes } from './changes.tsx'
import { Connection } from './connection.tsx'
import { OwnerPlans } from './owner-plan.tsx'
import { Payouts } from './payouts.tsx'
import { PlatformTerms } from './platform-terms.tsx'
import { Statements } from './statements.tsx'
import { Transactions } from './transactions.tsx'
import { WhoPays } from './who-pays.tsx'

/** What a payer has and owes, how it is collected, and where the money goes. */
export function Money(): ReactNode {
  const { clientId } = useParams({ from: '/$clientId/money' })
  const { user: externalUserId } = useSearch({ from: '/$clientId/money' })
  const { canEdit, canOwn, isPlatformAdmin } = useRights(clientId)
  const processor = useQuery(processorQuery(clientId))
  const navigate = useNavigate({ from: '/$clientId/money' })
  return (
    <Page
      title="Money"
      about="Who pays, what is left, and what is collected."
      actions={
        <Link className="button" to="/$clientId/money/payments" params={{ clientId }}>
          Payments of users
        </Link>
      }
    >
      <Answer query={processor} rows={6}>
        {(data) => (
          <>
            <Connection processor={data} canOwn={canOwn} />
            {data.status !== 'disconnected' && <Payouts clientId={clientId} />}
            {!data.isPlatformOwned && <WhoPays processor={data} canOwn={canOwn} />}
            {data.billingMode === 'merchant' && (
              <SearchForm
                label="User (external id)"
                value={externalUserId ?? ''}
                onSearch={(user) => void navigate({ search: user === '' ? {} : { user } })}
              />
            )}
            <PaidBy processor={data} payer={{ clientId, externalUserId }} canEdit={canEdit} />
            {canOwn && !data.isPlatformOwned && (
              <Owner
                clientId={clientId}
                showsMoney={data.billingMode === 'merchant' && externalUserId === undefined}
              />
            )}
            <Ceiling clientId={clientId} canEdit={canEdit} />
            <Statements clientId={clientId} />
            {isPlatformAdmin && <PlatformTerms clientId={clientId} />}
          </>
        )}
      </Answer>
    </Page>
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
  const since = usePaidSince(useSearch({ from: '/$clientId/money' }).paid)
  const wallet = useQuery(walletQuery(payer, since))
  return (
    <>
      <Answer query={wallet} rows={6}>
        {(data) => (
          <WalletCard wallet={data} isAwaited={since !== null}>
            {canEdit && <Changes payer={payer} wallet={data} />}
          </WalletCard>
        )}
      </Answer>
      <Transactions payer={payer} since={since} />
    </>
  )
}

interface OwnerProps {
  readonly clientId: string
  /** Whether to show balance and transactions of the account, which rollup shows elsewhere. */
  readonly showsMoney: boolean
}

/** What the owner pays to the platform, in any billing mode. */
function Owner({ clientId, showsMoney }: OwnerProps): ReactNode {
  const since = usePaidSince(useSearch({ from: '/$clientId/money' }).paid)
  const payer = { clientId, externalUserId: undefined, isOwner: true } as const
  return (
    <OwnerPlans clientId={clientId} since={since}>
      {showsMoney && <PayerMoney payer={payer} canEdit />}
    </OwnerPlans>
  )
}
