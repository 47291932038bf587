import { Link } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import type { Schemas } from '../../api/client.ts'
import { Micros } from '../amount.tsx'
import { Instant } from '../instant.tsx'
import { Name } from '../name.tsx'
import { LongTable } from '../table/long-table.tsx'

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
  /** The app in which the reader may see invoices. */
  readonly clientId?: string
  readonly pages: readonly { readonly items: readonly Transaction[] }[]
  readonly hasMore: boolean
}

const columns = [
  { name: 'Booked' },
  { name: 'Kind' },
  { name: 'Description' },
  { name: 'Amount', isNumber: true },
  { name: 'Change', isNumber: true },
  { name: 'Balance', isNumber: true },
]

/** What was booked on a payer’s account, the newest first. */
export const TransactionTable = (props: TransactionTableProps): ReactNode => (
  <LongTable
    label="Table of transactions"
    caption="The newest first. Invoices and payments leave the balance unchanged; they settle debt."
    columns={columns}
    pages={props.pages.map(({ items }) => items)}
    hasMore={props.hasMore}
    keyOf={idOf}
  >
    {(item) => (
      <>
        <th scope="row">
          <Instant at={item.date} />
        </th>
        <td>{typeNames[item.type]}</td>
        <td>
          {item.invoiceId === null || props.clientId === undefined ? (
            <Name>{item.description}</Name>
          ) : (
            <Link
              to="/$clientId/invoices/$invoiceId"
              params={{ clientId: props.clientId, invoiceId: item.invoiceId }}
            >
              <Name>{item.description}</Name>
            </Link>
          )}
        </td>
        <td className="number">
          <Micros value={item.amountUsdMicros} />
        </td>
        <td className="number">
          {item.creditDeltaUsdMicros === '0' ? '' : <Micros value={item.creditDeltaUsdMicros} />}
        </td>
        <td className="number">
          {item.balanceUsdMicros === null ? '' : <Micros value={item.balanceUsdMicros} />}
        </td>
      </>
    )}
  </LongTable>
)

const idOf = ({ id }: Transaction): string => id
