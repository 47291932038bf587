import { keepPreviousData, useQuery } from '@tanstack/react-query'
import { Link, useNavigate, useParams, useSearch } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import type { InvoicePayer } from '../api/attention.ts'
import type { Schemas } from '../api/client.ts'
import { processorQuery } from '../api/money.ts'
import { type InvoiceFilter, invoicePageSize, invoicesQuery } from '../api/queries.ts'
import { Dollars } from '../ui/amount.tsx'
import { formatCount } from '../ui/amounts.ts'
import { Answer } from '../ui/answer.tsx'
import { Instant } from '../ui/instant.tsx'
import { InvoiceStatus, reasonNames } from '../ui/money/invoice-status.tsx'
import { Name } from '../ui/name.tsx'
import { Page } from '../ui/page.tsx'
import { SearchForm } from '../ui/search/search-form.tsx'
import { Empty } from '../ui/states.tsx'
import { TableBox } from '../ui/table-box.tsx'
import { type InvoicesSearch, payers } from './search.ts'

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
  const { user } = useSearch({ from })
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
            void navigate({ search: { payer, ...(chosen !== '' && { user: chosen }) } })
          }
        />
      )}
      <List clientId={clientId} filter={payer === 'users' ? { payer, user } : { payer }} />
    </>
  )
}

interface ListProps {
  readonly clientId: string
  readonly filter: InvoiceFilter
}

function List({ clientId, filter }: ListProps): ReactNode {
  const { page = 1 } = useSearch({ from })
  const invoices = useQuery({
    ...invoicesQuery(clientId, { ...filter, page }),
    placeholderData: keepPreviousData,
  })
  return (
    <section className="card" aria-label={payerNames[filter.payer]}>
      <Answer query={invoices}>
        {({ items, totalCount }) =>
          totalCount === 0 ? (
            <NoInvoices filter={filter} />
          ) : (
            <>
              {items.length > 0 ? (
                <InvoiceTable clientId={clientId} items={items} payer={filter.payer} />
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

function NoInvoices({ filter: { payer, user } }: Pick<ListProps, 'filter'>): ReactNode {
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

interface InvoiceTableProps {
  readonly clientId: string
  readonly items: readonly Schemas['InvoiceSummary'][]
  readonly payer: InvoicePayer
}

const InvoiceTable = ({ clientId, items, payer }: InvoiceTableProps): ReactNode => (
  <TableBox label="Table of invoices">
    <table>
      <thead>
        <tr>
          <th scope="col">Number</th>
          {payer === 'users' && <th scope="col">User</th>}
          <th scope="col">Issued</th>
          <th scope="col">Because of</th>
          <th scope="col">Status</th>
          <th scope="col" className="number">
            Total
          </th>
        </tr>
      </thead>
      <tbody>
        {items.map(({ id, number, customerKey, issuedAt, reason, status, totalAmount }) => (
          <tr key={id}>
            <th scope="row">
              <Link to="/$clientId/invoices/$invoiceId" params={{ clientId, invoiceId: id }}>
                {number}
              </Link>
            </th>
            {payer === 'users' && (
              <td>
                <Name>{customerKey}</Name>
              </td>
            )}
            <td>
              <Instant at={issuedAt} />
            </td>
            <td>{reasonNames[reason]}</td>
            <td>
              <InvoiceStatus status={status} />
            </td>
            <td className="number">
              <Dollars value={totalAmount} />
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  </TableBox>
)

interface PagesProps {
  readonly clientId: string
  readonly page: number
  readonly total: number
}

function Pages({ clientId, page, total }: PagesProps): ReactNode {
  const last = Math.max(1, Math.ceil(total / invoicePageSize))
  const turn = (wanted: number) =>
    ({
      to: from,
      params: { clientId },
      search: (search: InvoicesSearch) => ({ ...search, page: wanted }),
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
