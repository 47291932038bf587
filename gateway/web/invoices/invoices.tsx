import { keepPreviousData, useQuery } from '@tanstack/react-query'
import { Link, useParams, useSearch } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import type { Schemas } from '../api/client.ts'
import { invoicePageSize, invoicesQuery } from '../api/queries.ts'
import { Dollars } from '../ui/amount.tsx'
import { formatCount } from '../ui/amounts.ts'
import { Answer } from '../ui/answer.tsx'
import { Instant } from '../ui/instant.tsx'
import { Page } from '../ui/page.tsx'
import { Empty } from '../ui/states.tsx'
import { TableBox } from '../ui/table-box.tsx'
import { StatusBadge } from './status.tsx'

/** Invoices and credit notes that the app issued to its users, newest first. */
export function Invoices(): ReactNode {
  const { clientId } = useParams({ from: '/$clientId/invoices' })
  const { page = 1 } = useSearch({ from: '/$clientId/invoices' })
  const invoices = useQuery({
    ...invoicesQuery(clientId, page),
    placeholderData: keepPreviousData,
  })
  return (
    <Page title="Invoices" about="Invoices and credit notes of your users, newest first.">
      <section className="card" aria-label="Invoices">
        <Answer query={invoices}>
          {({ items, totalCount }) =>
            totalCount === 0 ? (
              <NoInvoices />
            ) : (
              <>
                {items.length > 0 ? (
                  <InvoiceTable clientId={clientId} items={items} />
                ) : (
                  <Empty>This page is empty.</Empty>
                )}
                <Pages clientId={clientId} page={page} total={totalCount} />
              </>
            )
          }
        </Answer>
      </section>
    </Page>
  )
}

const NoInvoices = (): ReactNode => (
  <Empty>
    No invoice was issued yet. Users are invoiced once they pay you for a plan or for usage beyond
    what it includes.
  </Empty>
)

interface InvoiceTableProps {
  readonly clientId: string
  readonly items: readonly Schemas['InvoiceSummary'][]
}

const InvoiceTable = ({ clientId, items }: InvoiceTableProps): ReactNode => (
  <TableBox label="Table of invoices">
    <table>
      <thead>
        <tr>
          <th scope="col">Number</th>
          <th scope="col">User</th>
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
            <td>{customerKey}</td>
            <td>
              <Instant at={issuedAt} />
            </td>
            <td>{reason}</td>
            <td>
              <StatusBadge status={status} />
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
  const to = { to: '/$clientId/invoices', params: { clientId } } as const
  return (
    <nav className="row" aria-label="Pages">
      {page > 1 && (
        <Link className="button small" {...to} search={{ page: page - 1 }}>
          Newer
        </Link>
      )}
      <span className="soft">
        Page {formatCount(Math.min(page, last))} of {formatCount(last)}, {formatCount(total)} in all
      </span>
      {page < last && (
        <Link className="button small" {...to} search={{ page: page + 1 }}>
          Older
        </Link>
      )}
    </nav>
  )
}
