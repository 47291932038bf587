import type { ReactNode } from 'react'
import type { Schemas } from '../../api/client.ts'
import { Dollars } from '../amount.tsx'
import { Instant } from '../instant.tsx'
import { Name } from '../name.tsx'
import { TableBox } from '../table-box.tsx'
import { InvoiceStatus, reasonNames } from './invoice-status.tsx'

type Summary = Schemas['InvoiceSummary']

interface InvoiceTableProps {
  readonly label: string
  readonly invoices: readonly Summary[]
  /** Additional columns. */
  readonly shows?: { readonly user?: boolean; readonly reason?: boolean }
  /** Returns the number of a document, which leads to it. */
  readonly children: (invoice: Summary) => ReactNode
}

/** A list of invoices and credit notes. */
export const InvoiceTable = ({
  label,
  invoices,
  shows: { user = false, reason = false } = {},
  children,
}: InvoiceTableProps): ReactNode => (
  <TableBox label={label}>
    <table>
      <thead>
        <tr>
          <th scope="col">Number</th>
          {user && <th scope="col">User</th>}
          <th scope="col">Issued</th>
          {reason && <th scope="col">Because of</th>}
          <th scope="col">Status</th>
          <th scope="col" className="number">
            Total
          </th>
        </tr>
      </thead>
      <tbody>
        {invoices.map((invoice) => (
          <tr key={invoice.id}>
            <th scope="row">{children(invoice)}</th>
            {user && (
              <td>
                <Name>{invoice.customerKey}</Name>
              </td>
            )}
            <td>
              <Instant at={invoice.issuedAt} />
            </td>
            {reason && <td>{reasonNames[invoice.reason]}</td>}
            <td>
              <InvoiceStatus status={invoice.status} />
            </td>
            <td className="number">
              <Dollars value={invoice.totalAmount} />
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  </TableBox>
)
