import { useQuery } from '@tanstack/react-query'
import { Link, useNavigate, useParams, useSearch } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import type { InvoicePayer } from '../api/attention.ts'
import { processorQuery } from '../api/money.ts'
import {
  type InvoiceFilter,
  type ShownStatus,
  invoicePageSize,
  invoicesQuery,
  shownStatuses,
} from '../api/queries.ts'
import { formatCount } from '../ui/amounts.ts'
import { Answer } from '../ui/answer.tsx'
import { statusNames } from '../ui/money/invoice-status.tsx'
import { InvoiceTable } from '../ui/money/invoice-table.tsx'
import { Page } from '../ui/page.tsx'
import { SearchForm } from '../ui/search/search-form.tsx'
import { Empty } from '../ui/states.tsx'
import { payers } from './search.ts'

const from = '/$clientId/invoices'

/** Invoices and credit notes that the app issued to its users, or that its owner got. */
export function Invoices(): ReactNode {
  const { clientId } = useParams({ from })
  const { payer } = useSearch({ from })
  const processor = useQuery(processorQuery(clientId))
  return (
    <Page title="Invoices" about="Invoices and credit notes, newest first.">
      <Answer query={processor}>
        {({ billingMode }) => (
          <Chosen
            clientId={clientId}
            payer={payer ?? (billingMode === 'merchant' ? 'users' : 'owner')}
          />
        )}
      </Answer>
    </Page>
  )
}

interface ChosenProps {
  readonly clientId: string
  readonly payer: InvoicePayer
}

const payerNames = { users: 'To users', owner: 'To the owner' }

function Chosen({ clientId, payer }: ChosenProps): ReactNode {
  const { user, status } = useSearch({ from })
  const navigate = useNavigate({ from })
  return (
    <>
      <nav className="tabs" aria-label="Whose invoices">
        {payers.map((one) => (
          <Link
            key={one}
            to={from}
            params={{ clientId }}
            search={{ payer: one }}
            aria-current={one === payer ? 'true' : undefined}
          >
            {payerNames[one]}
          </Link>
        ))}
      </nav>
      {payer === 'users' && (
        <SearchForm
          label="User (external id)"
          value={user ?? ''}
          onSearch={(chosen) =>
            void navigate({
              search: { payer, ...(chosen !== '' && { user: chosen }), ...(status && { status }) },
            })
          }
        />
      )}
      <Statuses
        chosen={status}
        onChoose={(chosen) =>
          void navigate({
            search: {
              payer,
              ...(user !== undefined && { user }),
              ...(chosen && { status: chosen }),
            },
          })
        }
      />
      <List
        clientId={clientId}
        filter={payer === 'users' ? { payer, user, status } : { payer, status }}
      />
    </>
  )
}

interface StatusesProps {
  readonly chosen: ShownStatus | undefined
  readonly onChoose: (status: ShownStatus | undefined) => void
}

const shownNames: Readonly<Record<ShownStatus, string>> = {
  ...statusNames,
  credit_note: 'credit notes',
}

const Statuses = ({ chosen, onChoose }: StatusesProps): ReactNode => (
  <div className="row">
    <label>
      Status
      <select
        value={chosen ?? ''}
        onChange={({ target }) => onChoose(shownStatuses.find((one) => one === target.value))}
      >
        <option value="">all</option>
        {shownStatuses.map((status) => (
          <option key={status} value={status}>
            {shownNames[status]}
          </option>
        ))}
      </select>
    </label>
  </div>
)

interface ListProps {
  readonly clientId: string
  readonly filter: InvoiceFilter
}

function List({ clientId, filter }: ListProps): ReactNode {
  const { page = 1 } = useSearch({ from })
  const invoices = useQuery(invoicesQuery(clientId, { ...filter, page }))
  return (
    <section
      className="card"
      aria-label={payerNames[filter.payer]}
      aria-busy={invoices.isPlaceholderData}
    >
      <Answer query={invoices}>
        {({ items, totalCount }) =>
          totalCount === 0 ? (
            <NoInvoices filter={filter} />
          ) : (
            <>
              {items.length > 0 ? (
                <InvoiceTable
                  label="Table of invoices"
                  invoices={items}
                  shows={{ user: filter.payer === 'users', reason: true }}
                >
                  {({ id, number }) => (
                    <Link to="/$clientId/invoices/$invoiceId" params={{ clientId, invoiceId: id }}>
                      {number}
                    </Link>
                  )}
                </InvoiceTable>
              ) : (
                <Empty>This page is empty.</Empty>
              )}
              <Pages clientId={clientId} page={page} total={totalCount} />
            </>
          )
        }
      </Answer>
    </section>
  )
}

function NoInvoices({ filter: { payer, user, status } }: Pick<ListProps, 'filter'>): ReactNode {
  if (status !== undefined) return <Empty>No document has this status.</Empty>
  if (payer === 'owner')
    return (
      <Empty>
        No invoice was issued to this app’s owner. The platform invoices owners for what they owe
        for all their apps.
      </Empty>
    )
  return (
    <Empty>
      {user === undefined
        ? 'No invoice was issued to users. Users are invoiced once they pay this app for a plan, or for usage beyond what it includes.'
        : 'No invoice was issued to this user.'}
    </Empty>
  )
}

interface PagesProps {
  readonly clientId: string
  readonly page: number
  readonly total: number
}

function Pages({ clientId, page, total }: PagesProps): ReactNode {
  const last = Math.max(1, Math.ceil(total / invoicePageSize))
  const search = useSearch({ from })
  const turn = (wanted: number) =>
    ({
      to: from,
      params: { clientId },
      search: { ...search, page: wanted },
    }) as const
  return (
    <nav className="row" aria-label="Pages">
      {page > 1 && (
        <Link className="button small" {...turn(page - 1)}>
          Newer
        </Link>
      )}
      <span className="soft">
        Page {formatCount(Math.min(page, last))} of {formatCount(last)}, {formatCount(total)} in all
      </span>
      {page < last && (
        <Link className="button small" {...turn(page + 1)}>
          Older
        </Link>
      )}
    </nav>
  )
}
