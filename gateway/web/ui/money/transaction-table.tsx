import { Link } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import type { Schemas } from '../../api/client.ts'
import { Micros } from '../amount.tsx'
import { Instant } from '../instant.tsx'
import { Name } from '../name.tsx'
import { TableBox } from '../table-box.tsx'

type Transaction = Schemas['WalletTransaction']

const typeNames: Readonly<Record<Transaction['type'], string>> = {
  credit_purchased: 'credit bought',
  credit_granted: 'credit given',
  credit_expired: 'credit expired',
  usage: 'usage',
  adjustment: 'correction',
  refund: 'refund',
  invoice: 'invoice',
  credit_note: 'credit note',
  payment: 'payment',
}

interface TransactionTableProps {
  readonly clientId: string
  readonly items: readonly Transaction[]
}

/** What was booked on a payer’s account, the newest first. */
export const TransactionTable = ({ clientId, items }: TransactionTableProps): ReactNode => (
  <TableBox label="Table of transactions">
    <table>
      <caption>
        The newest first. Invoices and payments leave the balance unchanged; they settle debt.
      </caption>
      <thead>
        <tr>
          <th scope="col">Booked</th>
          <th scope="col">Kind</th>
          <th scope="col">Description</th>
          <th scope="col" className="number">
            Amount
          </th>
          <th scope="col" className="number">
            Change
          </th>
          <th scope="col" className="number">
            Balance
          </th>
        </tr>
      </thead>
      <tbody>
        {items.map((item) => (
          <tr key={item.id}>
            <th scope="row">
              <Instant at={item.date} />
            </th>
            <td>{typeNames[item.type]}</td>
            <td>
              {item.invoiceId === null ? (
                <Name>{item.description}</Name>
              ) : (
                <Link
                  to="/$clientId/invoices/$invoiceId"
                  params={{ clientId, invoiceId: item.invoiceId }}
                >
                  <Name>{item.description}</Name>
                </Link>
              )}
            </td>
            <td className="number">
              <Micros value={item.amountUsdMicros} />
            </td>
            <td className="number">
              {item.creditDeltaUsdMicros === '0' ? (
                ''
              ) : (
                <Micros value={item.creditDeltaUsdMicros} />
              )}
            </td>
            <td className="number">
              {item.balanceUsdMicros === null ? '' : <Micros value={item.balanceUsdMicros} />}
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  </TableBox>
)
