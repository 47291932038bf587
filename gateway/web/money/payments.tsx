import { useInfiniteQuery } from '@tanstack/react-query'
import { Link, useNavigate, useParams, useSearch } from '@tanstack/react-router'
import { type ReactNode, useState } from 'react'
import {
  type Payment,
  type PaymentFilter,
  paymentStates,
  paymentsQuery,
  usePaymentTable,
} from '../api/money.ts'
import { Dollars } from '../ui/amount.tsx'
import { Answer } from '../ui/answer.tsx'
import { Button } from '../ui/button.tsx'
import { Instant } from '../ui/instant.tsx'
import { More } from '../ui/more.tsx'
import { Name } from '../ui/name.tsx'
import { Page } from '../ui/page.tsx'
import { Empty, Failure } from '../ui/states.tsx'
import { LongTable } from '../ui/table/long-table.tsx'
import { storeCsv } from '../ui/table/store-csv.ts'

const from = '/$clientId/money/payments'

/** Lists payments of the app's users, with refunds and disputes. */
export function Payments(): ReactNode {
  const { clientId } = useParams({ from })
  const filter = useSearch({ from })
  const payments = useInfiniteQuery(paymentsQuery(clientId, filter))
  const isFiltered = Object.keys(filter).length > 0
  return (
    <Page
      title="Payments"
      about={
        <>
          What users paid to this app, newest first.{' '}
          <Link to="/$clientId/money" params={{ clientId }}>
            Back to Money
          </Link>
        </>
      }
    >
      <section className="card" aria-label="Payments">
        <Filter filter={filter} />
        <Export clientId={clientId} filter={filter} />
        <Answer query={payments}>
          {({ pages }) =>
            pages.some((page) => page.payments.length > 0) ? (
              <PaymentTable
                clientId={clientId}
                pages={pages.map((page) => page.payments)}
                hasMore={payments.hasNextPage}
              />
            ) : (
              <Empty>{isFiltered ? 'No payment fits the filter.' : 'No user has paid yet.'}</Empty>
            )
          }
        </Answer>
        <More query={payments} label="Show older" />
      </section>
    </Page>
  )
}

const stateNames: Readonly<Record<Payment['state'], string>> = {
  received: 'received',
  partly_refunded: 'partly refunded',
  refunded: 'refunded',
  disputed: 'disputed',
}

const looks: Readonly<Record<Payment['state'], string>> = {
  received: 'badge good',
  partly_refunded: 'badge warn',
  refunded: 'badge',
  disputed: 'badge bad',
}

const purposeNames: Readonly<Record<Payment['purpose'], string>> = {
  top_up: 'top-up',
  plan: 'plan',
  invoice: 'invoice',
}

interface Fields {
  readonly state?: Payment['state'] | undefined
  readonly user?: string
  readonly from?: string
  readonly to?: string
}

const compact = ({ state, user = '', from: since = '', to = '' }: Fields): PaymentFilter => ({
  ...(state && { state }),
  ...(user !== '' && { user }),
  ...(since !== '' && { from: since }),
  ...(to !== '' && { to }),
})

const empty = { user: '', from: '', to: '' }

/** The filter of the list. A state applies at once, what is typed with "Show". */
function Filter({ filter }: { readonly filter: PaymentFilter }): ReactNode {
  const navigate = useNavigate({ from })
  const [fields, setFields] = useState({ ...empty, ...filter })
  const [shown, setShown] = useState(filter)
  // Follows the address, and keeps the focus.
  if (JSON.stringify(shown) !== JSON.stringify(filter)) {
    setShown(filter)
    setFields({ ...empty, ...filter })
  }
  const show = (search: Fields): void => void navigate({ search: compact(search) })
  return (
    <form
      className="row"
      role="search"
      onSubmit={(event) => {
        event.preventDefault()
        show({ ...fields, user: fields.user.trim() })
      }}
    >
      <States chosen={filter.state} onChoose={(state) => show({ ...fields, ...state })} />
      <label>
        User (external id)
        <input
          type="search"
          maxLength={200}
          autoComplete="off"
          spellCheck={false}
          value={fields.user}
          onChange={({ target }) => setFields({ ...fields, user: target.value })}
        />
      </label>
      <Days fields={fields} onChange={(days) => setFields({ ...fields, ...days })} />
      <Button type="submit">Show</Button>
      {Object.keys(filter).length > 0 && <Button onClick={() => show({})}>Show all</Button>}
    </form>
  )
}

interface StatesProps {
  readonly chosen: Payment['state'] | undefined
  readonly onChoose: (chosen: { readonly state: Payment['state'] | undefined }) => void
}

const States = ({ chosen, onChoose }: StatesProps): ReactNode => (
  <label>
    State
    <select
      value={chosen ?? ''}
      onChange={({ target }) =>
        onChoose({ state: paymentStates.find((state) => state === target.value) })
      }
    >
      <option value="">all</option>
      {paymentStates.map((state) => (
        <option key={state} value={state}>
          {stateNames[state]}
        </option>
      ))}
    </select>
  </label>
)

interface DaysProps {
  readonly fields: { readonly from: string; readonly to: string }
  readonly onChange: (days: { readonly from?: string; readonly to?: string }) => void
}

const Days = ({ fields, onChange }: DaysProps): ReactNode => (
  <>
    <label>
      From (UTC)
      <input
        type="date"
        value={fields.from}
        onChange={({ target }) => onChange({ from: target.value })}
      />
    </label>
    <label>
      To (UTC)
      <input
        type="date"
        min={fields.from || undefined}
        value={fields.to}
        onChange={({ target }) => onChange({ to: target.value })}
      />
    </label>
  </>
)

interface ExportProps {
  readonly clientId: string
  readonly filter: PaymentFilter
}

/** All payments of the filter as a file. */
function Export({ clientId, filter }: ExportProps): ReactNode {
  const table = usePaymentTable(clientId)
  return (
    <>
      <div className="row">
        <Button
          disabled={table.isPending}
          onClick={() =>
            table.mutate(filter, { onSuccess: (csv) => storeCsv('payments.csv', csv) })
          }
        >
          {table.isPending ? 'Reading …' : 'Download CSV'}
        </Button>
      </div>
      {table.error && <Failure error={table.error} />}
    </>
  )
}

const columns = [
  { name: 'When' },
  { name: 'User' },
  { name: 'For' },
  { name: 'State' },
  { name: 'Amount', isNumber: true },
  { name: 'Fee', isNumber: true },
  { name: 'Refunded', isNumber: true },
  { name: 'Disputed', isNumber: true },
]

interface PaymentTableProps {
  readonly clientId: string
  readonly pages: readonly (readonly Payment[])[]
  readonly hasMore: boolean
}

const PaymentTable = ({ clientId, pages, hasMore }: PaymentTableProps): ReactNode => (
  <LongTable
    label="Table of payments"
    columns={columns}
    pages={pages}
    hasMore={hasMore}
    keyOf={idOf}
  >
    {(payment) => (
      <>
        <td title={`${payment.processorId} at the processor`}>
          <Instant at={payment.createdAt} />
        </td>
        <th scope="row">
          <Link
            to="/$clientId/users/$externalUserId"
            params={{ clientId, externalUserId: payment.externalUserId }}
          >
            <Name>{payment.externalUserId}</Name>
          </Link>
        </th>
        <td>
          <PaidFor clientId={clientId} payment={payment} />
        </td>
        <td>
          <span className={looks[payment.state]}>{stateNames[payment.state]}</span>
        </td>
        {[payment.amountUsd, payment.feeUsd, payment.refundedUsd, payment.disputedUsd].map(
          (value, index) => (
            <td key={columns[index + 4]?.name} className="number">
              <Dollars value={value} />
            </td>
          ),
        )}
      </>
    )}
  </LongTable>
)

const idOf = ({ id }: Payment): string => id

interface PaidForProps {
  readonly clientId: string
  readonly payment: Payment
}

const PaidFor = ({ clientId, payment: { purpose, invoiceId, plane } }: PaidForProps): ReactNode => (
  <>
    {invoiceId === null ? (
      purposeNames[purpose]
    ) : (
      <Link to="/$clientId/invoices/$invoiceId" params={{ clientId, invoiceId }}>
        {purposeNames[purpose]}
      </Link>
    )}
    {plane === 'test' && <span className="badge">test</span>}
  </>
)
